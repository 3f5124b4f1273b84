"""One of the two kernels of an infinitely wide network, and whether it exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from torch import Tensor

from ntkit._src.common import Progress, check_choice, check_result
from ntkit._src.native import BeyondRange, unsupported_reason
from ntkit._src.program import Activation, Attention, Op, Pointwise, Program, Shared
from ntkit._src.rules import diag, position_gram
from ntkit._src.trace import B_STD, W_STD
from ntkit.errors import EngineError, Problem, UnsupportedLayerError

from ._estimate import Estimate, sampling_error
from ._groups import Inputs, grouped_diag, is_plain
from ._kernel import Kernel
from ._positions import Positions, output_positions

if TYPE_CHECKING:
    from ._infinite_width import InfiniteWidth

Engine = Literal["auto", "reference", "native"]
ENGINES = get_args(Engine)
GAINS = ("w_std", "b_std")
_Result = TypeVar("_Result")


class InfiniteWidthKernel(Kernel):
    """One of the two kernels of an infinitely wide network: ``limit.ntk`` or ``limit.nngp``."""

    def __init__(self, limit: InfiniteWidth, which: Literal["ntk", "nngp"]) -> None:
        self.limit = limit
        self.which = which

    def __call__(
        self,
        x1: Inputs,
        x2: Inputs | None = None,
        engine: Engine = "auto",
        progress: Progress | None = None,
        *,
        gains: Tensor | None = None,
    ) -> Tensor:
        """Return the kernel matrix, shape (n1, n2), in the dtype and on the device of the input.

        Parameters
        ----------
        x1, x2
            Inputs, shape (n1, ...) and (n2, ...), float32 or float64; ``x2=None`` means ``x2 = x1``, at half the cost. Or a
            list of inputs whose sizes may differ: tensors without the batch, or graphs (edges, features); a tuple or mapping
            of tensors (n, ...) if the forward has several arguments; graphs of PyTorch Geometric or DGL; a nested tensor.
        engine
            ``"reference"``: torch, any device, derivatives of any order. ``"native"``: the C++ core, for CPU tensors, with first
            derivatives by inputs and gains in reverse mode (their own derivatives come from the reference engine); raises
            :class:`~ntkit.errors.EngineError` if it lacks an instruction for an operation or its derivatives, or if an input is
            beyond the range of one (``limit.explain`` lists the ranges). ``"auto"``: native where possible. The reference
            engine computes in float64; so does the native one for float64 inputs, while it computes float32 inputs in float32
            where that preserves their precision, and derivatives always in float64.
        progress
            Called after each tile (for a grid, after each of its rows) with the number of entries done and the total number.
        gains
            A grid of gains, shape (g, 2) with rows (w_std, b_std), in place of those of the limit: the result has the shape
            (g, n1, n2), and its entries are those of ``limit.with_gains(w_std, b_std)``. The module is read once; for up to 128
            inputs the native engine also reads the data once, so that a gain costs some microseconds. The reference engine
            differentiates with respect to the grid.

        Examples
        --------
        >>> import torch, ntkit
        >>> from torch import nn
        >>> limit = ntkit.infinite_width(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1)))
        >>> x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        >>> limit.nngp(x, gains=torch.tensor([[1.0, 0.0], [2.0, 0.0], [2.0, 1.0]]))[:, 0, 0]
        tensor([0.2500, 4.0000, 7.0000], dtype=torch.float64)
        """
        kernels = self.limit._compute(
            x1, x2, engine, progress, ntk=self.which == "ntk", nngp=self.which == "nngp", gains=gains
        )
        value = kernels.ntk if self.which == "ntk" else kernels.nngp
        assert value is not None
        return value

    def diag(self, x: Inputs, engine: Engine = "auto") -> Tensor:
        """Return K(x_i, x_i), shape (n,), with an ``engine`` as in a call."""
        if not is_plain(x):
            return grouped_diag(
                self.limit, x, lambda limit, own: InfiniteWidthKernel(limit, self.which).diag(own, engine)
            )
        assert isinstance(x, Tensor)
        self.limit._check_batches(x, None)
        ntk = self.which == "ntk"
        program = self.limit._program(x.shape[1:], ntk)
        values = run_on(
            engine,
            lambda: unsupported_reason(program, x),
            native=lambda: self.limit._native(program).diag(x, ntk),
            reference=lambda: diag(program, x, ntk),
        )
        check_result(values)
        return values

    def positions(self, x1: Tensor, x2: Tensor | None = None, at: Positions | None = None) -> Tensor:
        r"""Return the kernel between positions of the output, for networks whose output is an image or a sequence.

        If the module returns (n, channels, H, W), the result has the shape (n1, n2, H, W, H, W): entry
        :math:`[i, j, p, p']` is the kernel between one channel of :math:`f(x_i)` at p and the same channel of
        :math:`f(x_j)` at p'; it is zero between different channels. A call, ``limit.ntk(x1, x2)``, returns its mean over
        p = p'. The reference engine always computes it.

        Parameters
        ----------
        x1, x2
            As in a call.
        at
            m positions of the output: integers if it has one position axis, otherwise tuples, or a tensor of shape
            (m, axes). The result is (n1, n2, m, m), and rows and columns that hold none of them are not formed. Default:
            all positions.

        Raises
        ------
        InputError
            For positions outside the output.
        MemoryLimitError
            If the result does not fit into memory.

        Examples
        --------
        >>> import torch, ntkit
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Conv1d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 1, 3, padding=1))
        >>> x = torch.ones(2, 1, 5, dtype=torch.float64)
        >>> limit = ntkit.infinite_width(net)
        >>> limit.ntk.positions(x).shape
        torch.Size([2, 2, 5, 5])
        >>> limit.ntk.positions(x, at=[0, 2]).shape
        torch.Size([2, 2, 2, 2])
        """
        self.limit._check_batches(x1, x2)
        ntk = self.which == "ntk"
        asked = output_positions(self.limit._program(x1.shape[1:], ntk, positions=True), at)
        asked.check_memory(len(x1) * len(x1 if x2 is None else x2), ntk, x1)
        value = asked.read(position_gram(asked.program, x1, x2, ntk))
        check_result(value)
        return value

    def estimate(self, x1: Tensor, x2: Tensor | None = None) -> Estimate:
        """Return the kernel and its standard error, both of shape (n1, n2); the error is zero without sampled attention."""
        self.limit._check_batches(x1, x2)
        value = self(x1, x2)
        program = self.limit._program(x1.shape[1:], self.which == "ntk")
        return Estimate(value, sampling_error(program, x1, x2, ntk=self.which == "ntk"))

    def standard_error(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return the standard error due to sampled attention, shape (n1, n2)."""
        return self.estimate(x1, x2).error

    def __repr__(self) -> str:
        return f"{self.limit!r}.{self.which}"


def gain(kernel: Kernel, name: str) -> float:
    """Return a gain that all layers of an infinite-width kernel share, and that may be changed; zero if there is none."""
    rule = kernel.limit.gains if isinstance(kernel, InfiniteWidthKernel) else None
    if rule is None or rule.init == "torch" or rule.parametrized:
        return 0.0
    value = getattr(rule, name)
    if value is None:
        value = W_STD if name == "w_std" else B_STD
    return value.item() if isinstance(value, Tensor) else float(value)


def with_gains(kernel: Kernel, w_std: float | Tensor, b_std: float | Tensor) -> Kernel:
    """Return the same kernel of the same module with other gains."""
    assert isinstance(kernel, InfiniteWidthKernel)
    return InfiniteWidthKernel(kernel.limit.with_gains(w_std, b_std), kernel.which)


def run_on(
    engine: str, unsupported: Callable[[], str | None], native: Callable[[], _Result], reference: Callable[[], _Result]
) -> _Result:
    """Compute with an engine, unless the native one cannot; ``"auto"`` also leaves it for inputs beyond its ranges."""
    check_choice("engine", engine, ENGINES)
    against = None if engine == "reference" else unsupported()
    if engine == "native" and against is not None:
        raise EngineError(f'{against}. Write engine="reference" or engine="auto".')
    if engine != "reference" and against is None:
        try:
            return native()
        except BeyondRange:
            if engine == "native":
                raise
    return reference()


def check_differentiable(program: Program) -> None:
    """Refuse a tangent kernel through an activation whose derivative is zero or infinite."""
    problems = tuple(
        Problem(
            node.path,
            str(phi),
            "its derivative is zero or infinite, so a tangent kernel through it does not exist",
            "use limit.nngp, or freeze every parameter before it",
        )
        for nodes in (program.nodes, *(node.op.nodes for node in program.nodes if isinstance(node.op, Shared)))
        for node in nodes
        if (phi := _activation(node.op)) is not None
        and not phi.differentiable
        and node.inputs  # what a shared part reads has none there
        and nodes[node.inputs[0]].trained
    )
    if problems:
        raise UnsupportedLayerError(problems)


def _activation(op: Op) -> Activation | None:
    """Return the activation whose derivative the tangent kernel needs."""
    if isinstance(op, Pointwise):
        return op.phi
    return op.phi if isinstance(op, Attention) and op.scaling == "sqrt" else None
