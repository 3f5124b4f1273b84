"""Nystrom and Falkon against the normal equations in float64, and where naive ones fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import mlp
from torch import Tensor

import ntkit
from ntkit._src.gram import DenseGram, KernelGram
from ntkit._src.solvers import _nystrom, choose_centres
from ntkit._src.solvers._centres import factorise_centres
from ntkit.errors import InputError, SingularKernelError
from ntkit.solvers import Falkon, Nystrom, Outcome, predict

HOW = ["uniform", "rpcholesky", "leverage", "kmeans++"]


def _oracle(case: Any, centres: Tensor, ridge: float) -> Tensor:
    """Fitted values K_nM a by least squares in float64."""
    cross = case.dense[:, centres]
    lower = torch.linalg.cholesky(cross[centres] + 1e-14 * torch.eye(len(centres), dtype=torch.float64))
    b = torch.linalg.solve_triangular(lower, cross.T, upper=False).T
    rho = ridge * case.dense.trace() / len(cross)
    stacked = torch.cat([b, rho.sqrt() * torch.eye(len(centres), dtype=torch.float64)])
    right = torch.cat([case.y, torch.zeros(len(centres), 3, dtype=torch.float64)])
    return b @ torch.linalg.lstsq(stacked, right).solution


@pytest.mark.parametrize("kind", ["dense", "stored", "computed"])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("method", [Nystrom, Falkon])
def test_agrees_with_least_squares(case: Any, kind: str, how: Any, method: Any, tmp_path: Path) -> None:
    gram = case.operator(kind, tmp_path)
    system = method(40, how).set_up(gram, 1e-3, case.y)
    found, one = system.solve(case.y), system.solve(case.y[:, 2])
    assert found.value.shape == (40, 3) and one.value.shape == (40,) and found.centres is not None
    fitted = case.dense[:, found.centres] @ found.value
    torch.testing.assert_close(fitted, _oracle(case, found.centres, 1e-3), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(case.dense[:, found.centres] @ one.value, fitted[:, 2], rtol=1e-6, atol=1e-6)
    assert found.status.outcome is Outcome.APPROXIMATED and found.stats["bytes"] > 0
    if method is Nystrom:
        misfit = ((fitted - case.y).norm(dim=0) / case.y.norm(dim=0)).max()
        assert abs(found.stats["misfit"] - float(misfit)) < 1e-9


def test_approaches_the_exact_solution(case: Any) -> None:
    exact = case.dense @ case.exact(1e-2)[:, :2]
    errors = []
    for m in (10, 40, 150):
        found = Nystrom(m).set_up(DenseGram(case.dense), 1e-2).solve(case.y[:, :2])
        errors.append(float((case.dense[:, found.centres] @ found.value - exact).norm() / exact.norm()))
    assert errors[0] > 2 * errors[1] and errors[1] > 1e-3 and errors[2] < 1e-6


def test_other_ridges_from_the_same_pass(case: Any) -> None:
    system = Nystrom(40).set_up(DenseGram(case.dense), 1e-1, case.y)
    for ridge in (1e-4, 1.0):
        apart = Nystrom(centres=system.centres).set_up(DenseGram(case.dense), ridge).solve(case.y)
        torch.testing.assert_close(system.with_ridge(ridge).solve(case.y).value, apart.value, rtol=1e-6, atol=1e-8)


def test_reads_the_kernel_once_and_keeps_it_where_asked(case: Any, tmp_path: Path) -> None:
    class Counting(ntkit.Kernel):
        entries = 0

        def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
            values = case.kernel(x1, x2)
            Counting.entries += values.numel()
            return values

        def diag(self, x: Tensor) -> Tensor:
            return case.kernel.diag(x)

    centres = torch.arange(0, 150, 5)
    for keep, passes in ((None, 1), (True, 1), (False, 2)):
        Counting.entries = 0
        method = Nystrom(centres=centres, keep=keep, scratch=str(tmp_path))
        system = method.set_up(KernelGram(Counting(), case.x), 1e-3, case.y)
        system.solve(case.y)
        assert Counting.entries == 30 * 30 + 150 * 30, "the first right-hand side goes along in the first pass"
        found = system.solve(case.y[:, :1])
        if keep is not None:
            assert Counting.entries == 30 * 30 + passes * 150 * 30
        reference = Nystrom(centres=centres).set_up(DenseGram(case.dense), 1e-3).solve(case.y[:, :1])
        torch.testing.assert_close(found.value, reference.value, rtol=1e-6, atol=1e-8)
        del system
        assert not list(tmp_path.iterdir())


def test_naive_normal_equations_in_single_precision_fail_where_these_do_not() -> None:
    generator = torch.Generator().manual_seed(0)
    net = mlp(2, 8, 8, 1)
    kernel = ntkit.infinite_width(net, b_std=0.1).ntk
    x = torch.randn(3000, 2, generator=generator)
    y = torch.sin(3 * x[:, 0]) + x[:, 1] ** 2
    ridge, centres = 1e-6, torch.arange(300)
    found = Nystrom(centres=centres).set_up(KernelGram(kernel, x), ridge, y).solve(y)
    wide = Nystrom(centres=centres).set_up(KernelGram(kernel, x.double()), ridge, y.double()).solve(y.double())
    test = torch.randn(500, 2, generator=generator)
    truth = torch.sin(3 * test[:, 0]) + test[:, 1] ** 2
    error = [
        float((predict(kernel, test.to(x_.dtype), x_, s) - truth).norm() / truth.norm())
        for x_, s in ((x, found), (x.double(), wide))
    ]
    assert error[0] < 1.2 * error[1] < 0.3

    cross = kernel(x, x[centres])
    rho = ridge * float(kernel.diag(x).mean())
    normal = cross.T @ cross + rho * cross[centres]
    try:
        naive = torch.cholesky_solve((cross.T @ y)[:, None], torch.linalg.cholesky(normal))[:, 0]
    except torch.linalg.LinAlgError:
        return
    failed = float((kernel(test, x[centres]) @ naive - truth).norm() / truth.norm())
    assert failed > 2 * error[0]


@pytest.mark.parametrize("how", HOW)
def test_centres_are_rows_each_once(case: Any, how: Any) -> None:
    for m in (1, 14, 150):
        rows = choose_centres(DenseGram(case.dense), m, how, 1e-3, torch.Generator().manual_seed(0))
        assert rows.shape == (m,) and len(rows.unique()) == m and int(rows.min()) >= 0 and int(rows.max()) < 150
    again = choose_centres(DenseGram(case.dense), 14, how, 1e-3, torch.Generator().manual_seed(3))
    assert torch.equal(again, choose_centres(DenseGram(case.dense), 14, how, 1e-3, torch.Generator().manual_seed(3)))


def test_chosen_centres_beat_random_ones() -> None:
    """Two clusters, one of them rare: uniform centres often miss it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.cat(
        [0.1 * torch.randn(490, 2, generator=generator), 5 + torch.randn(10, 2, generator=generator)]
    ).double()
    gram = DenseGram(torch.exp(-(torch.cdist(x, x) ** 2) / 2))

    def left(how: Any, seed: int) -> float:
        rows = choose_centres(gram, 20, how, 1e-3, torch.Generator().manual_seed(seed))
        part = gram.matrix[:, rows]
        inner = torch.linalg.solve(part[rows] + 1e-10 * torch.eye(20), part.T)
        return float((gram.matrix - part @ inner).trace())

    uniform = sum(left("uniform", seed) for seed in range(10))
    for how in ("rpcholesky", "leverage", "kmeans++"):
        assert sum(left(how, seed) for seed in range(10)) < 0.5 * uniform, how


def test_bad_centres(case: Any) -> None:
    gram = DenseGram(case.dense)
    for centres, message in (
        (torch.tensor([1, 1]), "each once"),
        (torch.tensor([150]), "from 0 to 149"),
        ("odd", "must be one of .uniform."),
    ):
        with pytest.raises(InputError, match=message):
            Nystrom(3, centres).set_up(gram, 0.1)
    with pytest.raises(InputError, match="at most n = 150"):
        Nystrom(151).set_up(gram, 0.1)
    with pytest.raises(InputError, match="at least 1"):
        Falkon(0).set_up(gram, 0.1)
    repeated = DenseGram(torch.ones(20, 20, dtype=torch.float64) - 0.5 * torch.eye(20, dtype=torch.float64))
    with pytest.raises(SingularKernelError, match="K_MM"):
        Nystrom(5, "uniform").set_up(repeated, 0.1)
    with pytest.raises(SingularKernelError, match="inputs zero"):
        Nystrom(5, "uniform").set_up(DenseGram(torch.zeros(20, 20)), 0.1)


def test_repeated_rows_are_handled(case: Any) -> None:
    dense = case.dense.repeat(2, 2)
    y = case.y.repeat(2, 1)
    found = Nystrom(300, "uniform").set_up(DenseGram(dense), 1e-2).solve(y)
    assert found.stats["jitter"] > 0 and "a jitter of" in found.status
    exact = dense @ torch.linalg.solve(dense + 1e-2 * dense.trace() / 300 * torch.eye(300, dtype=torch.float64), y)
    torch.testing.assert_close(dense[:, found.centres] @ found.value, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [[-1, 2], [2, 150], [1, 1], [], [[0, 1]]])
def test_row_numbers_that_are_none(case: Any, rows: list[Any]) -> None:
    with pytest.raises(InputError, match="from 0 to 149, each once"):
        Nystrom(centres=torch.tensor(rows)).set_up(DenseGram(case.dense), 1e-3)


@pytest.mark.parametrize(
    ("dtype", "jitter"), [(torch.float64, 0.0), (torch.float32, 4 * torch.finfo(torch.float32).eps)]
)
def test_centres_in_single_precision_are_jittered_from_the_start(dtype: torch.dtype, jitter: float) -> None:
    """The rounding of their entries looks like small eigenvalues."""
    gram = torch.eye(5, dtype=dtype) + 0.5
    lower, found = factorise_centres(DenseGram(gram), torch.tensor([0, 2, 3]), 1.5)
    assert found == jitter
    expected = gram[:3, :3].double() + 1.5 * jitter * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(lower @ lower.T, expected, rtol=1e-14, atol=0)


def test_a_pivot_of_rounding_takes_jitter() -> None:
    """The second pivot, 2 eps of its diagonal entry, is a difference of rounded numbers."""
    eps = torch.finfo(torch.float64).eps
    near = DenseGram(torch.tensor([[1.0, 1.0], [1.0, 1.0 + 2 * eps]], dtype=torch.float64))
    assert factorise_centres(near, torch.arange(2), 1.0)[1] == 4 * eps
    apart = DenseGram(torch.tensor([[1.0, 1.0], [1.0, 1.0 + 8 * eps]], dtype=torch.float64))
    assert factorise_centres(apart, torch.arange(2), 1.0)[1] == 0


def test_a_matrix_that_fills_half_the_disk_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocks = _nystrom.RowBlocks(DenseGram(torch.eye(40, dtype=torch.float64)), torch.arange(10))
    blocks.rows = 8
    clock = iter([0.0, 1.0, 1.5] * 2)  # computing a block takes a second, writing it half of one
    monkeypatch.setattr(_nystrom.time, "perf_counter", lambda: next(clock))
    for free, kept in ((2 * 40 * 10 * 8, True), (2 * 40 * 10 * 8 - 2, False)):
        monkeypatch.setattr(_nystrom, "free_disk", lambda folder, free=free: free)
        assert blocks.worth_keeping(str(tmp_path)) is kept
