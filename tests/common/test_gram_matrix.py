"""Why a Gram matrix is singular: repeated rows, multiples of each other, too many."""

from __future__ import annotations

import pytest
import torch
from linear_operator.operators import DiagLinearOperator
from tests.cases import mlp, normal

import ntkit
from ntkit._src.common import (
    _gram_matrix,
    check_gram,
    check_pairs,
    check_ridge,
    check_right_hand_side,
    largest_eigenvalue,
    why_singular,
)
from ntkit.errors import InputError, InputTypeError, JitterWarning


@pytest.mark.parametrize("ridge", [0, 0.5, torch.tensor(2.0)])
def test_ridge(ridge: float) -> None:
    assert check_ridge(ridge) == float(ridge)


@pytest.mark.parametrize(
    ("ridge", "error"),
    [
        (True, InputTypeError),
        ("1", InputTypeError),
        (None, InputTypeError),
        (-1e-9, InputError),
        (float("inf"), InputError),
        (float("nan"), InputError),
    ],
)
def test_no_ridge(ridge: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="ridge must be"):
        check_ridge(ridge)  # type: ignore[arg-type]


def test_gram_is_given_back_and_implicit_ones_are_read() -> None:
    gram = torch.eye(3)
    assert check_gram(gram) is gram
    assert torch.equal(check_gram(DiagLinearOperator(torch.tensor([1.0, 2.0]))), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))


@pytest.mark.parametrize(
    ("gram", "error"),
    [
        (torch.eye(3, dtype=torch.int64), InputTypeError),
        (torch.eye(3, dtype=torch.float16), InputTypeError),
        (torch.ones(3, 2), InputError),
        (torch.ones(3), InputError),
        (torch.ones(0, 0), InputError),
    ],
)
def test_no_gram(gram: torch.Tensor, error: type[Exception]) -> None:
    with pytest.raises(error, match="the Gram matrix must"):
        check_gram(gram)


@pytest.mark.parametrize("place", [(0, 0), (6, 1), (1, 6), (3, 4)])
def test_every_block_is_looked_at(place: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three rows, the last one short: a bad entry is found wherever it is."""
    monkeypatch.setattr(_gram_matrix, "_BLOCK_ROWS", 3)
    for value in (float("nan"), float("inf"), -float("inf")):
        gram = torch.eye(7)
        gram[place] = value
        with pytest.raises(InputError, match="NaN or infinite"):
            check_gram(gram)
    if place[0] != place[1]:
        gram = 2 * torch.eye(7)
        gram[place] = 1.9e-4  # below 1e-4 of the largest entry, which is rounding
        check_gram(gram)
        gram[place] = -2.1e-4
        with pytest.raises(InputError, match=r"by up to 2.1e-04, the largest being 2.0e\+00"):
            check_gram(gram)


def test_the_largest_entry_may_be_negative() -> None:
    check_gram(torch.tensor([[0.0, -100.0], [-100.009, 0.0]]))


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (torch.ones(2), InputError, "n = 3"),
        (torch.ones(()), InputError, "shape"),
        (torch.ones(3, 0), InputError, "shape"),
        (torch.ones(3, 1, 1), InputError, "shape"),
        (torch.ones(3, dtype=torch.float64), InputTypeError, "write y.to"),
        (torch.tensor([1.0, float("inf"), 0.0]), InputError, "remove those rows"),
    ],
)
def test_no_right_hand_side(y: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_right_hand_side(y, torch.eye(3))
    check_right_hand_side(torch.ones(3), torch.eye(3))
    check_right_hand_side(torch.ones(3, 2), torch.eye(3))


def test_pairs() -> None:
    values = torch.ones(2, 3)
    assert check_pairs(values, (2, 3)) is values
    for bad, message in (
        (
            torch.ones(4, 6),
            r"kernel\(x\) must be a tensor of shape \(2, 3\).*Got shape \(4, 6\). A row for each of 2 outputs",
        ),
        (torch.ones(4, 3), r"Got shape \(4, 3\). Return one number"),
        (torch.ones(2, 3, 1, 1), r"Got shape \(2, 3, 1, 1\). Return one number"),
        (3.0, r"Got float. Return one number"),
    ):
        with pytest.raises(InputError, match=message):
            check_pairs(bad, (2, 3))
    with pytest.raises(InputError, match=r"k must be a tensor of shape \(0, 0\)"):
        check_pairs(torch.ones(0), (0, 0), "k")


X = normal(6, 2)
Y = X @ torch.tensor([[1.0, 0.5], [-1.0, 2.0]], dtype=torch.float64)
CLASSES = torch.tensor([0, 1] * 3)


@pytest.mark.parametrize(
    "use",
    [
        lambda k: ntkit.GradientFlow(k).fit(X, Y),
        lambda k: ntkit.GradientFlow(k).fit(X, Y.reshape(-1)),
        lambda k: ntkit.solve(k, Y, x=X, ridge=0.1),
        *(lambda k, m=m: ntkit.solve(k, Y, x=X, ridge=0.1, method=m) for m in ("cg", "nystrom", "falkon", "eigenpro")),
        lambda k: ntkit.gram(k, X),
        lambda k: ntkit.NTKRegressor(kernel=k).fit(X.numpy(), Y.numpy()),
        lambda k: ntkit.NTKRegressor(kernel=k, solver="nystrom").fit(X.numpy(), Y.numpy()),
        lambda k: ntkit.NTKClassifier(kernel=k).fit(X.numpy(), CLASSES.numpy()),
        lambda k: ntkit.RFMRegressor(kernel=k, iterations=1).fit(X.numpy(), Y.numpy()),
        lambda k: ntkit.LabelAware(k).fit(X, CLASSES),
        lambda k: ntkit.LabelAwareClassifier(kernel=k).fit(X.numpy(), CLASSES.numpy()),
        lambda k: ntkit.diagnostics.learning_times(k, X, y=Y[:, 0]),
        lambda k: ntkit.diagnostics.bounds(k, Y[:, 0], 10, x=X),
        lambda k: ntkit.diagnostics.mercer(k, dim=2, degrees=3),
        lambda k: ntkit.as_sklearn_kernel(k)(X.numpy()),
        lambda k: ntkit.as_sklearn_kernel(k).diag(X.numpy()),
        lambda k: ntkit.as_gpytorch_kernel(k)(X).to_dense(),
    ],
)
def test_a_row_for_each_output_is_refused_by_name(use) -> None:
    net = mlp(2, 4, 2).double()
    with pytest.raises(InputError, match=r'one number for a pair.*each of 2 outputs comes from .*write output="trace"'):
        use(ntkit.empirical(net, output="full").ntk)


def limit(b_std: float) -> ntkit.results.InfiniteWidth:
    return ntkit.infinite_width(mlp(3, 8, 1), b_std=b_std)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_repeated_rows(dtype: torch.dtype) -> None:
    x = normal(8, 3)
    x[5], x[7] = x[2], x[2]
    found = why_singular(limit(0.2).ntk(x.to(dtype)))
    assert "the rows of 3 pairs are the same input to the kernel (rows 2 and 5, say)" in found
    assert "integer and boolean columns" in found and "multiples" not in found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_collinear_rows_without_biases(dtype: torch.dtype) -> None:
    x = normal(8, 3)
    x[6] = 3 * x[1]
    found = why_singular(limit(0.0).ntk(x.to(dtype)))
    assert found.startswith("rows 1 and 6 are multiples of each other")
    assert "b_std=0.1" in found and "same input" not in found
    assert "multiples" not in why_singular(limit(0.3).ntk(x.to(dtype)))


def test_other_reasons() -> None:
    features = normal(9, 4)
    assert "more rows than the kernel can tell apart" in why_singular(features @ features.T)
    x = normal(4, 3)
    x[2] = 0
    assert "zero rows without biases" in why_singular(limit(0.0).ntk(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_warning_says_why_and_advises_float64_only_in_float32(dtype: torch.dtype) -> None:
    x = (normal(30, 3) > 0).to(dtype)  # boolean columns: at most eight different rows
    with pytest.warns(JitterWarning, match="same input to the kernel") as caught:
        ntkit.solve(limit(0.1).ntk(x), torch.ones(30, dtype=dtype))
    assert ("float64" in str(caught[0].message)) == (dtype == torch.float32)
    if dtype == torch.float64:
        integers = torch.tensor([[1.0, 0, 0], [2.0, 0, 0], [3.0, 0, 0], [0.0, 1, 0]], dtype=dtype)
        with pytest.warns(JitterWarning, match="multiples of each other.*b_std=0.1"):
            ntkit.solve(limit(0.0).ntk(integers), torch.ones(4, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_is_that_of_the_dense_matrix(n: int, dtype: torch.dtype) -> None:
    root = normal(n, n, seed=n)
    matrix = root @ root.T
    found = largest_eigenvalue(lambda vector: matrix.to(dtype) @ vector, n, matrix.to(dtype))
    expected = torch.linalg.eigvalsh(matrix)[-1].item()
    assert found == pytest.approx(expected, rel=1e-9 if dtype == torch.float64 else 1e-5)
