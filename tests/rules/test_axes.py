"""Maps of positions at both ends of a covariance, against loops over the pairs."""

import pytest
import torch
from tests.cases import normal

from ntkit._src.rules._axes import both_sides


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("middle", [(), (5,)])
def test_pairs_of_two_batches(same, shared, middle):
    k = normal(2, 3, *middle, 4, 6)
    first, second = normal(1 if shared else 2, 7, 4, seed=1), normal(1 if shared else 3, 7, 6, seed=2)
    found = both_sides(first, k, second, 2, same)
    for i in range(2):
        for j in range(3):
            full = first[0 if shared else i] @ k[i, j] @ second[0 if shared else j].T
            torch.testing.assert_close(
                found[i, j], full.diagonal(dim1=-2, dim2=-1) if same else full, rtol=1e-13, atol=1e-13
            )


@pytest.mark.parametrize("same", [False, True])
def test_inputs_with_themselves(same):
    k, maps = normal(3, 4, 4), normal(3, 7, 4, seed=1)
    full = maps @ k @ maps.mT
    found = both_sides(maps, k, maps, 1, same)
    torch.testing.assert_close(found, full.diagonal(dim1=-2, dim2=-1) if same else full, rtol=1e-13, atol=1e-13)
