"""The native engine: the contract of the reference engine, on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor

from ntkit._src.common import Progress, differentiated
from ntkit._src.program import Gains, Program, Structure
from ntkit._src.rules import Kernels, diag
from ntkit.errors import EngineError

from . import _core
from ._differentiable import derivatives_of, differentiable_gram, in_reverse
from ._network import PlannedNetwork, unsupported
from ._pull_back import with_numbers
from ._runner import BeyondRange, Runner, TapeKind
from .families import numbers_over_gains

_Result = TypeVar("_Result")


_MISSING: WeakKeyDictionary[Structure, str | None] = WeakKeyDictionary()  # what :func:`unsupported` has found


def unsupported_reason(program: Program, *batches: Tensor | None) -> str | None:
    """Return why the native engine cannot compute this; None if it can."""
    for batch in batches:
        if batch is None:
            continue
        if not batch.is_cpu:
            return f"the input is on {batch.device}, and the native engine runs on the CPU"
        if not in_reverse(batch):
            return "the input belongs to a transform of torch.func or is a dual number, which only the reference engine supports"
    gains = program.tensor_gains
    if not in_reverse(*gains):
        return "a gain is a dual number, which only the reference engine supports"
    if program.structure not in _MISSING:
        _MISSING[program.structure] = unsupported(with_numbers(program))
    missing = _MISSING[program.structure]
    if missing is not None:
        return f"the native engine has no instruction for {missing}"
    given = [batch for batch in batches if batch is not None]
    if differentiated(*given, *gains):
        if all(batch.is_floating_point() for batch in given):
            return derivatives_of(program).missing
        return "the native engine has no derivatives by gains for inputs that are integers"
    return None


def tape_of(program: Program, kind: TapeKind = "between", ntk: bool = True) -> _core.Tape:
    """Plan a program and return its tape; :meth:`NativeEngine.tape` describes ``kind`` and ``ntk``."""
    missing = unsupported(with_numbers(program))
    if missing is not None:
        raise EngineError(f"The native engine has no instruction for {missing}, so it plans no tape.")
    return NativeEngine(program).tape(kind, ntk)


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
        self._planned: NativeEngine | None = None

    def with_gains(self, program: Program) -> NativeEngine:
        """Return the engine of a program that differs in the values of gains alone; it plans tapes only if they are rewritten."""
        other = NativeEngine(program)
        other._planned = None if self.runner().network.rewritten else self
        return other

    def gram(self, x1: Tensor, x2: Tensor | None, ntk: bool, nngp: bool, progress: Progress | None = None) -> Kernels:
        """Compute Theta and K between two batches, shape (n1, n2), or of one batch with itself if ``x2`` is None.

        Inputs beyond the range of a version are detected when they are read; the computation then restarts with the next one.
        Inputs and gains that require gradients get them, see ``_differentiable``.
        """

        def compute(x1: Tensor, x2: Tensor | None) -> Kernels:
            return self._first_covering(lambda runner: runner.gram(x1, x2, ntk, nngp, progress))

        if differentiated(*(x for x in (x1, x2) if x is not None), *self.program.tensor_gains):
            return differentiable_gram(self.program, x1, x2, compute)
        return compute(x1, x2)

    def over_gains(
        self, x1: Tensor, x2: Tensor | None, ntk: bool, nngp: bool, gains: Mapping[int, Gains], count: int
    ) -> Kernels | None:
        """Compute Theta and K, shape (count, n1, n2), for gains that are tensors (count,); None if the inputs are not few."""
        if self.runner().network.rewritten:
            return None
        numbers = numbers_over_gains(self.program, gains, count)
        return self._first_covering(lambda runner: runner.over_gains(x1, x2, ntk, nngp, *numbers))

    def diag(self, x: Tensor, ntk: bool) -> Tensor:
        """Compute Theta(x_i, x_i), or K(x_i, x_i) if ``ntk`` is False, shape (n,).

        Where gradients are needed, the reference engine computes it: there are n entries, not n^2.
        """
        if differentiated(x, *self.program.tensor_gains):
            return diag(self.program, x, ntk)
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
            numbers = with_numbers(self.program)
            self._runners[tier] = (
                Runner(PlannedNetwork(numbers, tier))
                if self._planned is None
                else self._planned.runner(tier).with_gains(numbers)
            )
        return self._runners[tier]
