"""What ntkit.solve chooses, what it says before it starts, and what it refuses."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ntkit
from ntkit._src.gram import KernelGram
from ntkit._src.solvers import _choice
from ntkit._src.solvers import _solve as solving
from ntkit.errors import InputError, InputTypeError, MemoryLimitError
from ntkit.results import Solution
from ntkit.solvers import CG, BlockedCholesky, EigenPro, Falkon, Indefinite, Method, Nystrom, Outcome, Status, System


@pytest.mark.parametrize("method", ["auto", "cholesky", "indefinite", "cg", "nystrom", "falkon", "eigenpro"])
@pytest.mark.parametrize("kind", ["tensor", "stored", "kernel"])
def test_every_method_takes_every_matrix(case: Any, method: str, kind: str, tmp_path: Path) -> None:
    gram: Any = (
        {"tensor": case.dense, "kernel": case.kernel}.get(kind) if kind != "stored" else case.operator(kind, tmp_path)
    )
    arguments = {"x": case.x} if kind == "kernel" else {}
    notes: list[str] = []
    found = ntkit.solve(gram, case.y, method=method, ridge=0.3, note=notes.append, **arguments)
    fitted = case.dense[:, found.centres] @ found.value if found.centres is not None else case.dense @ found.value
    exact = case.dense @ case.exact(0.3)
    assert float((fitted - exact).norm() / exact.norm()) < (
        1e-6 if method in ("auto", "cholesky", "indefinite", "cg") else 0.1
    )
    if not ((kind != "stored" and method in ("auto", "cholesky")) or (kind == "tensor" and method == "indefinite")):
        assert "about" in notes[0] and "memory" in notes[0]


class Cheap(ntkit.Kernel):
    """A kernel that a million rows can be asked for."""

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return x1 @ (x1 if x2 is None else x2).T

    def diag(self, x: Tensor) -> Tensor:
        return (x * x).sum(1)


def test_large_problems_are_approximated_and_impossible_ones_refused() -> None:
    gram = KernelGram(Cheap(), torch.ones(1, 1).expand(1_000_000, 1))
    best, why = _choice.choose(gram, 1, memory=4 * 10**9)
    assert isinstance(best.method, (Nystrom, Falkon)) and best.memory < 4 * 10**9 and not best.exact
    assert "No exact method fits" in why or "takes longer" in why
    with pytest.raises(MemoryLimitError, match=r"no method for 1000000 rows fits into 1\.0 MB.*(\n.*)*Nystrom\(1000\)"):
        _choice.choose(gram, 1, memory=10**6)
    y = torch.ones(1_000_000)
    with pytest.raises(
        MemoryLimitError, match=r"Cholesky factorisation in memory.*4\.\d TB.*This would fit: (Nystrom|Falkon)"
    ):
        ntkit.solve(gram, y, method=BlockedCholesky(in_memory=True), memory=4 * 10**9)
    with pytest.raises(MemoryLimitError, match=r"Nystrom\(100000\).*320\.\d GB.*can be used"):
        ntkit.solve(gram, y, method=Nystrom(100_000), memory=4 * 10**9)


def test_small_and_middling_problems_are_solved_exactly(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gram = KernelGram(case.kernel, case.x)
    best, why = _choice.choose(gram, 3)
    assert best.exact and "exact and fits" in why
    monkeypatch.setattr(solving, "_SMALL", 10)
    notes: list[str] = []
    found = ntkit.solve(case.kernel, case.y, x=case.x, ridge=1e-3, note=notes.append)
    assert notes[0].startswith("Chosen: ") and found.status.outcome is Outcome.SOLVED
    torch.testing.assert_close(found.value, case.exact(1e-3), rtol=1e-6, atol=1e-6)
    monkeypatch.setattr(solving, "_SMALL", len(case.x))  # the largest that is simply factorised, without a choice
    at_once: list[str] = []
    ntkit.solve(case.kernel, case.y, x=case.x, ridge=1e-3, note=at_once.append)
    assert not at_once


def test_slow_kernels_are_not_asked_for_every_entry(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gram = KernelGram(case.kernel, case.x.repeat(50, 1))
    monkeypatch.setattr(_choice, "measure", lambda gram: _choice.Rates(1e-3, 1e10, 1e10))
    best, why = _choice.choose(gram, 1)
    assert isinstance(best.method, Nystrom) and "ask for it by name" in why
    for method in (Indefinite(), CG(), EigenPro(), Falkon(50), Nystrom(50), BlockedCholesky()):
        expected = _choice.estimate(method, gram, 1, 10**12)
        assert expected is not None and expected.seconds > 0


@dataclass(frozen=True)
class Richardson(Method):
    """A user's method."""

    steps: int

    def set_up(self, gram: Any, ridge: float, y: Tensor | None = None, note: Any = None) -> RichardsonSystem:
        if note is not None:
            note(f"{self.steps} steps.")
        shift = ridge * float(gram.diagonal().mean())
        largest = float(gram.diagonal().sum()) + shift  # at least the largest eigenvalue
        return RichardsonSystem(gram, shift, 1 / largest, self.steps)


@dataclass(frozen=True)
class RichardsonSystem(System):
    gram: Any
    shift: float
    step: float
    steps: int

    def solve(self, y: Tensor) -> Solution:
        columns = y if y.ndim == 2 else y[:, None]
        value = torch.zeros_like(columns)
        for _ in range(self.steps):
            value = value + self.step * (columns - self.gram.product(value) - self.shift * value)
        rest = columns - self.gram.product(value) - self.shift * value
        return Solution(value.reshape(y.shape), Status(Outcome.SOLVED, "Done."), {"residual": float(rest.norm())})


@pytest.mark.parametrize("kind", ["tensor", "stored", "kernel"])
def test_a_method_of_the_user(case: Any, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_choice, "measure", None)  # nothing is measured for a method whose cost nobody knows
    gram: Any = {"tensor": case.dense, "kernel": case.kernel}.get(kind)
    gram = case.operator("stored", tmp_path) if gram is None else gram
    notes: list[str] = []
    found = ntkit.solve(
        gram,
        case.y,
        method=Richardson(300),
        ridge=20.0,
        note=notes.append,
        **({"x": case.x} if kind == "kernel" else {}),
    )
    torch.testing.assert_close(found.value, case.exact(20.0), rtol=1e-6, atol=1e-6)
    assert notes == ["Richardson: its time and memory are not known.", "300 steps."]
    assert found.status == "Done." and found.stats["residual"] < 1e-6


def test_an_estimator_takes_a_method_of_the_user(case: Any) -> None:
    model = ntkit.NTKRegressor(kernel=case.kernel, solver=Richardson(300), ridge=20.0).fit(
        case.x.numpy(), case.y.numpy()
    )
    expected = case.dense @ case.exact(20.0)
    torch.testing.assert_close(torch.from_numpy(model.predict(case.x.numpy())), expected, rtol=1e-6, atol=1e-6)
    assert model.jitter_ == 0 and model.solution_status_ == "Done."


def test_bad_input(case: Any, tmp_path: Path) -> None:
    for method in ("lu", 3, None):
        with pytest.raises(InputError, match="method must be one of 'auto', 'cholesky', 'indefinite', 'cg'"):
            ntkit.solve(case.dense, case.y, method=method)  # type: ignore[arg-type]
    cross = ntkit.gram(case.kernel, case.x, case.x[:9], out=tmp_path / "cross.npy")
    square = ntkit.gram(case.kernel, case.x, case.x + 1, out=tmp_path / "square.npy")
    for gram in (cross, square):
        with pytest.raises(InputError, match=r"must be K\(x, x\)"):
            ntkit.solve(gram, case.y, method="cg")
    stored = case.operator("stored", tmp_path)
    with pytest.raises(InputError, match="n = 150"):
        ntkit.solve(stored, case.y[:10])
    with pytest.raises(InputTypeError, match="dtype and device"):
        ntkit.solve(stored, case.y.float())
    with pytest.raises(InputError, match="leave x out"):
        ntkit.solve(stored, case.y, x=case.x)
    with pytest.raises(InputTypeError, match="must be a torch.Tensor, a stored one or a kernel"):
        ntkit.solve(case.dense.numpy(), case.y)


def test_a_status_is_a_sentence_and_an_outcome() -> None:
    status = Status(Outcome.JITTERED, "Solved; jitter was added.")
    assert status == "Solved; jitter was added." and "jitter" in status and str(status) == f"{status}"
    assert status.outcome is Outcome.JITTERED and status.converged
    copy = pickle.loads(pickle.dumps(status))
    assert copy == status and copy.outcome is Outcome.JITTERED
    assert not Status(Outcome.NOT_CONVERGED, "No.").converged


def test_the_speed_of_products_counts_their_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest of three products of 768 x 768 matrices, 2 x 768^3 operations, here in a quarter of a second."""
    clock = iter([0.0, 1.0, 2.0, 2.25, 3.0, 3.5])
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: next(clock))
    assert _choice._flops(torch.float32) == 2 * 768**3 / 0.25


def test_the_timed_block_doubles_up_to_four_thousand_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Instant:
        shape, dtype = (10_000, 10_000), torch.float64

        def block(self, rows: slice, columns: slice) -> None:
            assert rows == columns
            sizes.append(rows.stop)

    monkeypatch.setattr(_choice.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(_choice, "_flops", lambda dtype: 1.0)
    _choice.measure(Instant())  # type: ignore[arg-type]
    assert sizes == [128, 256, 512, 1024, 2048, 4096]
