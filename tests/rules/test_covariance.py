"""The state of the rules: restriction to diagonals, maps of positions, and what broadcasts against what."""

from __future__ import annotations

import pytest
import torch
from tests.cases import normal

from ntkit._src.program import Keep
from ntkit._src.rules._axes import diagonal_mask
from ntkit._src.rules._covariance import Covariance, Ends, Moments

ALL, SAME = Keep.ALL, Keep.SAME


def test_dimensions():
    between = Covariance(normal(2, 3, 4, 4, 5), None, (ALL, SAME))
    assert (between.pair_dims, between.dims(0), between.dims(1)) == (2, (2, 3), (4,))
    own = Covariance(normal(2, 5, 4, 4), None, (SAME, ALL))
    assert (own.pair_dims, own.dims(0), own.dims(1)) == (1, (1,), (2, 3))


@pytest.mark.parametrize("keeps", [(ALL, ALL), (SAME, ALL), (ALL, SAME), (SAME, SAME)])
def test_restriction_takes_diagonals(keeps):
    full = Covariance(normal(2, 3, 4, 4, 5, 5), normal(2, 3, 4, 4, 5, 5, seed=1), (ALL, ALL), normal(1, 1, 4, 4, 5, 5))
    found = full.restrict(keeps)
    assert found.keeps == keeps
    first, second = ("pp" if keep is SAME else "pr" for keep in keeps)
    second = second.replace("p", "q").replace("r", "s")
    formula = f"ab{first}{second}->ab{''.join(dict.fromkeys(first + second))}"
    for given, part in ((full.nngp, found.nngp), (full.ntk, found.ntk), (full.affine, found.affine)):
        assert torch.equal(part, torch.einsum(formula, given))
    assert full.restrict((ALL, ALL)) is full


def test_h_is_dropped_with_and_without_a_ratio():
    k = normal(2, 3)
    for ratio in (None, normal(2, 1)):
        bare = Covariance(k, None, (), h=k, ratio=ratio).without_h()
        assert bare.h is None and bare.ratio is None and torch.equal(bare.nngp, k)


def test_affine_term_settles_to_a_times_k():
    k, theta, a = normal(2, 3), normal(2, 3, seed=1), normal(2, 3, seed=2)
    torch.testing.assert_close(Covariance(k, theta, (), a).settled().ntk, theta + a * k, rtol=1e-15, atol=1e-15)
    torch.testing.assert_close(Covariance(k, None, (), a).settled().ntk, a * k, rtol=1e-15, atol=0)
    assert Covariance(k, None, (), a).settled().affine is None
    plain = Covariance(k, None, ())
    assert plain.settled() is plain


def test_maps_of_positions():
    """One A for all positions passes a linear map of them; another does not, and is settled first."""
    k, theta = normal(2, 3, 4), normal(2, 3, 4, seed=1)
    shared = Covariance(k, theta, (SAME,), torch.tensor([[[0.5]]])).map(lambda v: v.sum(2), ())
    assert torch.equal(shared.nngp, k.sum(2)) and torch.equal(shared.ntk, theta.sum(2))
    assert shared.affine.shape == (1, 1) and shared.keeps == ()
    own = normal(2, 1, 1, seed=2)
    settled = Covariance(k, theta, (SAME,), own).map(lambda v: v.sum(2), ())
    assert settled.affine is None
    torch.testing.assert_close(settled.ntk, (theta + own * k).sum(2))
    assert Covariance(k, None, (SAME,)).map(lambda v: 2 * v).ntk is None


def test_values_of_one_input_broadcast():
    """K[a, b, p, p', q] = m1[a, p, q] m2[b, p', q], between two batches and of each input with itself."""
    one, two = normal(2, 4, 5), normal(3, 4, 5, seed=1)
    moments = Moments({}, {}, {7: one}), Moments({}, {}, {7: two})
    first, second = Ends(*moments, 2).means(7, (ALL, SAME))
    torch.testing.assert_close(first * second, torch.einsum("apq,brq->abprq", one, two))
    first, second = Ends(moments[0], moments[0], 1).means(7, (ALL, SAME))
    torch.testing.assert_close(first * second, torch.einsum("apq,arq->aprq", one, one))
    assert Ends(*moments, 2).means(0, (ALL, SAME)) is None


def test_rows_of_moments():
    moments = Moments({(0, 0): normal(5, 2)}, {1: normal(5)}, {2: normal(5, seed=1)})
    some = moments.rows(1, 3)
    assert torch.equal(some.data[0, 0], moments.data[0, 0][1:3])
    assert torch.equal(some.variance[1], moments.variance[1][1:3])
    assert torch.equal(some.mean[2], moments.mean[2][1:3])


def test_mask_of_equal_positions():
    covariance = Covariance(normal(2, 3, 4, 4, 5), None, (ALL, SAME))
    assert torch.equal(diagonal_mask(covariance, (0, 1)), torch.eye(4, dtype=torch.float64).reshape(1, 1, 4, 4, 1))
    assert diagonal_mask(covariance, (1,)).tolist() == [[[[[1.0]]]]]
