"""The native engine: the contract of the reference engine, on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from torch import Tensor

from ntkit._src.common import Progress, differentiated
from ntkit._src.program import Gains, Program
from ntkit._src.rules import Kernels
from ntkit.errors import EngineError

from . import _core
from ._network import PlannedNetwork, unsupported
from ._runner import BeyondRange, Runner, TapeKind

_Result = TypeVar("_Result")


def unsupported_reason(program: Program, *batches: Tensor | None) -> str | None:
    """Return why the native engine cannot compute this; None if it can."""
    for batch in batches:
        if batch is not None and batch.device.type != "cpu":
            return f"the input is on {batch.device}, and the native engine runs on the CPU"
        if batch is not None and differentiated(batch):
            return "the input needs gradients, which the native engine does not support"
    if any(_needs_gradient(node.op) for node in program.nodes):
        return "a gain needs gradients, which the native engine does not support"
    missing = unsupported(program)
    return None if missing is None else f"the native engine has no instruction for {missing}"


def tape_of(program: Program, kind: TapeKind = "between", ntk: bool = True) -> _core.Tape:
    """Plan a program and return its tape; :meth:`NativeEngine.tape` describes ``kind`` and ``ntk``."""
    missing = unsupported(program)
    if missing is not None:
        raise EngineError(f"The native engine has no instruction for {missing}, so it plans no tape.")
    return NativeEngine(program).tape(kind, ntk)


def _needs_gradient(op: object) -> bool:
    gains = getattr(op, "gains", None)
    return isinstance(gains, Gains) and any(
        isinstance(gain, Tensor) and differentiated(gain) for gain in (gains.w_std, gains.b_std)
    )


class NativeEngine:
    """Computes kernels of a program for which :func:`unsupported_reason` returns None; tapes are planned once.

    It computes in float32 for float32 inputs if the network has only activations of the ReLU family, no product of branches and
    no normalisation, and in float64 otherwise. Activations that are expanded in series have versions of more and more Hermite
    orders, for larger and larger variances: the first that covers all inputs is used. Where none does, it raises
    :class:`BeyondRange`; likewise where deviations before a normalisation or after attention differ by more than a
    factor of 65,536.
    :func:`ranges` lists both limits.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._runners: dict[int, Runner] = {}

    def gram(self, x1: Tensor, x2: Tensor | None, ntk: bool, nngp: bool, progress: Progress | None = None) -> Kernels:
        """Compute Theta and K between two batches, shape (n1, n2), or of one batch with itself if ``x2`` is None.

        Inputs beyond the range of a version are detected when they are read; the computation then restarts with the next one.
        """
        return self._first_covering(lambda runner: runner.gram(x1, x2, ntk, nngp, progress))

    def diag(self, x: Tensor, ntk: bool) -> Tensor:
        """Compute Theta(x_i, x_i), or K(x_i, x_i) if ``ntk`` is False, shape (n,)."""
        return self._first_covering(lambda runner: runner.diag(x, ntk))

    def _first_covering(self, compute: Callable[[Runner], _Result]) -> _Result:
        """Compute with the first version of the network that covers the inputs; raise what the last one raises."""
        last = self.runner().network.tiers - 1
        for tier in range(last):
            with suppress(BeyondRange):
                return compute(self.runner(tier))
        return compute(self.runner(last))

    def tape(self, kind: TapeKind = "between", ntk: bool = True) -> _core.Tape:
        """Return the tape of two inputs, of what is cached of each ("cache", never Theta), or of each with itself ("diag")."""
        return self.runner().plan(kind, ntk and kind != "cache").tape

    def runner(self, tier: int = 0) -> Runner:
        """Return the runner of one version of the network."""
        if tier not in self._runners:
            self._runners[tier] = Runner(PlannedNetwork(self.program, tier))
        return self._runners[tier]
