"""Which rows become centres: distinct ones, spread over what the kernel tells apart."""

from __future__ import annotations

import pytest
import torch

from ntkit._src.gram import DenseGram
from ntkit._src.solvers import _centres
from ntkit._src.solvers._centres import _leveraged, _spread, choose_centres
from ntkit.errors import InputError

WAYS = ("uniform", "rpcholesky", "leverage", "kmeans++")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gram(n: int = 40) -> DenseGram:
    x = torch.randn(n, 3, generator=generator(5), dtype=torch.float64)
    return DenseGram(torch.exp(-(torch.cdist(x, x) ** 2) / 2))


@pytest.mark.parametrize("how", WAYS)
def test_rows_are_distinct_and_follow_the_generator(how: str) -> None:
    found = choose_centres(gram(), 12, how, generator=generator())  # type: ignore[arg-type]
    assert found.shape == (12,) and len(set(found.tolist())) == 12
    assert int(found.min()) >= 0 and int(found.max()) < 40
    assert torch.equal(found, choose_centres(gram(), 12, how, generator=generator()))  # type: ignore[arg-type]
    every = choose_centres(gram(), 40, how, generator=generator())  # type: ignore[arg-type]
    assert sorted(every.tolist()) == list(range(40))


@pytest.mark.parametrize("how", ["rpcholesky", "kmeans++"])
def test_copies_are_not_chosen_twice(how: str) -> None:
    four = torch.eye(4, dtype=torch.float64).repeat_interleave(10, 0).repeat_interleave(10, 1)
    found = choose_centres(DenseGram(four), 7, how, generator=generator())  # type: ignore[arg-type]
    assert sorted((found // 10).tolist()) == [0, 1, 2, 3]


def test_spread_rows_are_drawn_by_squared_distance() -> None:
    """After the first of three points on a line, the others come in proportion to their squared distance."""
    x = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    pairs = [tuple(_spread(DenseGram(x @ x.T), 2, generator(seed)).tolist()) for seed in range(1200)]
    from_zero = [second for first, second in pairs if first == 0]
    assert len(from_zero) > 300
    share = from_zero.count(2) / len(from_zero)
    assert abs(share - 0.9) < 4.5 * (0.09 / len(from_zero)) ** 0.5  # 9 / (1 + 9)
    from_one = [second for first, second in pairs if first == 1]
    assert abs(from_one.count(2) / len(from_one) - 0.8) < 4.5 * (0.16 / len(from_one)) ** 0.5  # 4 / (1 + 4)


def test_leverage_prefers_rows_that_are_unlike_the_others() -> None:
    """One row in a direction of its own among many copies of another: its leverage is near one, theirs shared."""
    n = 60
    k = torch.ones(n, n, dtype=torch.float64)
    k[0, 1:] = k[1:, 0] = 0
    share = sum(0 in _leveraged(DenseGram(k), 5, 0.1, generator(seed)).tolist() for seed in range(100)) / 100
    assert share > 0.5  # uniform draws: 5 of 60


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="at most n = 40"):
        choose_centres(gram(), 41)
    with pytest.raises(InputError, match="Got 'best'"):
        choose_centres(gram(), 3, "best")  # type: ignore[arg-type]


@pytest.mark.parametrize(("n_centres", "rows"), [(3, 2000), (210, 2100), (290, 2800)])
def test_ten_candidates_for_each_centre(n_centres: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[int] = []
    monkeypatch.setattr(_centres, "_spread", lambda part, count, _: pools.append(part.shape[0]) or torch.arange(count))
    choose_centres(DenseGram(torch.eye(2800)), n_centres, "kmeans++", generator=generator())
    assert pools == [rows]
