"""Blocked Cholesky in memory and on disk against the dense solution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ntkit
from ntkit._src.gram import DenseGram
from ntkit._src.solvers import _blocked_cholesky as blocked
from ntkit.errors import MemoryLimitError, SingularKernelError
from ntkit.solvers import BlockedCholesky, Outcome


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("kind", ["dense", "stored", "computed"])
@pytest.mark.parametrize("width", [32, 64, 150, 1024])
def test_agrees_with_the_dense_solution(
    case: Any, kind: str, in_memory: bool, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "_WIDTH", width)
    memory = 10**9 if in_memory else 4 * 150 * 8 * width + 2 * 1024**2 * 8
    gram = case.operator(kind, tmp_path)
    system = BlockedCholesky(in_memory=in_memory, memory=memory, scratch=str(tmp_path)).set_up(gram, 1e-6)
    found, one = system.solve(case.y), system.solve(case.y[:, 0])
    torch.testing.assert_close(found.value, case.exact(1e-6), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(one.value, found.value[:, 0], rtol=1e-8, atol=1e-8)
    assert found.status.outcome is Outcome.SOLVED and found.stats["residual"] < 1e-11
    assert ("in memory" if in_memory else "on disk") in found.status
    torch.testing.assert_close(gram.to_dense(), case.dense, rtol=0, atol=0)  # which is not overwritten


@pytest.mark.parametrize("in_memory", [True, False])
def test_single_precision_is_refined_to_the_solution_of_what_is_stored(
    case: Any, in_memory: bool, tmp_path: Path
) -> None:
    stored = ntkit.gram(case.kernel, case.x, out=tmp_path / "k.zarr", tile=64, dtype=torch.float32)
    system = BlockedCholesky(in_memory=in_memory, scratch=str(tmp_path)).set_up(stored, 1e-4)
    found = system.solve(case.y.float())
    rounded = case.dense.float().double()
    shifted = rounded + 1e-4 * rounded.trace() / 150 * torch.eye(150, dtype=torch.float64)
    exact = torch.linalg.solve(shifted, case.y.float().double())
    plain = torch.cholesky_solve(case.y.float(), torch.linalg.cholesky(shifted.float()))
    assert (found.value - exact).norm() < 2e-7 * exact.norm() < 0.1 * (plain - exact).norm()


def test_jitter_of_the_factor_does_not_change_the_solution(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    factorise, shifts = blocked._factorise, []

    def breaks_down_twice(panels: Any, shift: float, note: Any) -> bool:
        shifts.append(shift)
        return len(shifts) > 2 and factorise(panels, shift, note)

    monkeypatch.setattr(blocked, "_factorise", breaks_down_twice)
    found = BlockedCholesky().set_up(DenseGram(case.dense), 1e-6).solve(case.y)
    eps, mean = torch.finfo(torch.float64).eps, float(case.dense.trace()) / len(case.dense)
    assert [shift / mean - 1e-6 for shift in shifts] == pytest.approx([0, 10 * eps, 100 * eps], rel=1e-6, abs=eps / 10)
    torch.testing.assert_close(found.value, case.exact(1e-6), rtol=1e-8, atol=1e-8)
    assert "the factor, not the solution" in found.status


def test_factors_after_a_breakdown_in_place(case: Any) -> None:
    """The upper triangle still holds K when the first attempt fails midway."""
    panels = blocked._InPlace(DenseGram(case.dense))
    assert not blocked._factorise(panels, -0.5 * float(case.dense.trace()) / 150, print)
    assert blocked._factorise(panels, 0.1, print)
    lower = panels.matrix.tril()
    torch.testing.assert_close(
        lower @ lower.T, case.dense + 0.1 * torch.eye(150, dtype=torch.float64), rtol=1e-12, atol=1e-12
    )


def test_an_indefinite_matrix_is_refused(case: Any) -> None:
    with pytest.raises(SingularKernelError, match="stays singular"):
        BlockedCholesky().set_up(DenseGram(case.dense - torch.eye(150, dtype=torch.float64)), 0.0)


def test_too_little_memory_is_refused(case: Any, tmp_path: Path) -> None:
    gram = case.operator("stored", tmp_path)
    with pytest.raises(MemoryLimitError, match="in_memory=False"):
        BlockedCholesky(in_memory=True, memory=1000).set_up(gram, 1e-3)
    with pytest.raises(MemoryLimitError, match="at least"):
        BlockedCholesky(in_memory=False, memory=1000).set_up(gram, 1e-3)


def test_leaves_no_files_behind(case: Any, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    system: Any = BlockedCholesky(in_memory=False, scratch=str(scratch)).set_up(case.operator("stored", tmp_path), 1e-3)
    assert list(scratch.iterdir())
    del system
    assert not list(scratch.iterdir())
