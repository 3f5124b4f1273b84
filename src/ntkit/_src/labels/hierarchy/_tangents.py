"""A network's gradients and their derivatives along vector fields, nested: no tensor of order 3 or more is formed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

from ntkit._src.common import Elementary, mirror_upper, plain_attention, row_blocks
from ntkit._src.kernels import BYTE_BUDGET, Network

Frame = Sequence[Tensor]
r"""Parameter vectors by bit mask: entry 0 is theta; entry S is :math:`V_{S - i} g_i` with i the lowest bit of S.

With :math:`V_i` the derivative along the vector field :math:`g_i(\theta) = \sum_j u_{ij} \nabla f(x_j)`, a function's
:math:`V_k \cdots V_1` is its mixed derivative in all :math:`t_i` at :math:`\theta + \sum_{S \neq 0} c_S \prod_{i \in S} t_i`:
the entries are constants, so only the network itself is differentiated more than once.
"""


class Tangents:
    """A network with one output as a function of one parameter vector ``theta``, shape (P,), and its gradients' derivatives.

    They are taken along vector fields formed by the gradients at the inputs ``x``, shape (n, ...).
    """

    def __init__(self, network: Network, x: Tensor, byte_budget: int = BYTE_BUDGET) -> None:
        self.x, self.byte_budget = x, byte_budget
        self._network = network
        self._shapes = {name: parameter.shape for name, parameter in network.trained.items()}
        self.theta = _vector(network)
        self._row_bytes: int | None = None
        self._batched = True
        self._compared: set[tuple[int, int]] = set()

    def of(self, network: Network) -> Tangents:
        """Return the same for other parameters of the same architecture."""
        other = copy.copy(self)
        other._network = network
        other.theta = _vector(network)
        return other

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return f(x; theta), shape (n,)."""
        pieces = theta.split([shape.numel() for shape in self._shapes.values()])
        parameters = {
            name: piece.view(shape) for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }
        return self._network(x, parameters)[:, 0]

    def frame(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Return the frame of the fields of some vectors, each of shape (n,): 2^k parameter vectors."""
        frame = [self.theta]
        for mask in range(1, 2 ** len(vectors)):
            rest = mask & (mask - 1)
            lowest = (mask ^ rest).bit_length() - 1
            within = [frame[part] for part in range(rest + 1) if part & rest == part]  # the frame of the other vectors
            frame.append(self.pull(vectors[lowest], self.x, within))
        return frame

    def pull(self, u: Tensor, x: Tensor, frame: Frame) -> Tensor:
        r"""Return :math:`\sum_i u_i V_k \cdots V_1 \nabla f(x_i)`, shape (P,)."""
        total = torch.zeros_like(self.theta)
        for rows in row_blocks(len(x), self._rows_at_once(0, len(frame))):
            with _differentiable():
                weighted = grad(lambda theta, rows=rows: u[rows] @ self.outputs(theta, x[rows]))
                total += _derivatives(weighted, frame)[-1]
        return total

    def rows(self, x: Tensor, frame: Frame) -> list[Tensor]:
        r"""Return V_S J(x) for every set S of the frame's vectors, each of shape (n, P): the gradients' derivatives."""
        if self._batched:
            try:
                with _differentiable():
                    found = _derivatives(lambda theta: vmap(lambda row: self._gradient(theta, row))(x), frame)
                if self._agrees(found[-1], x, frame):
                    return found
            except (RuntimeError, ValueError, TypeError, NotImplementedError):
                pass  # vmap does not support all that autograd supports
            self._batched = False
        with _differentiable():
            each = [_derivatives(partial(self._gradient, row=row), frame) for row in x]
        return [torch.stack(parts) for parts in zip(*each, strict=True)]

    def gram(self, x1: Tensor, x2: Tensor | None, fields: Sequence[Sequence[Tensor]]) -> Tensor:
        """Return the kernel contracted with the vectors of each of some fields, k vectors each, summed, shape (n1, n2)."""
        total = self.theta.new_zeros(len(x1), len(x1 if x2 is None else x2))
        for frames in self._frames(fields):
            few = self._rows_at_once(16 * len(frames[0]), len(frames[0]))
            for rows in row_blocks(len(x1), 8 * few):
                for frame in frames:
                    self._add(total, x1, rows, x2, frame, few)
        return total if x2 is not None else mirror_upper(total.mT).mT

    def _add(self, total: Tensor, x1: Tensor, rows1: slice, x2: Tensor | None, frame: Frame, few: int) -> None:
        """Add some rows of the kernel, or their part left of and on the diagonal: they are held while others pass by."""
        held = self._held(x1[rows1], frame, few)
        other = x1 if x2 is None else x2
        for rows2 in row_blocks(rows1.start if x2 is None else len(other), few):
            _add_products(total[rows1, rows2], held, self.rows(other[rows2], frame))
        if x2 is None:
            _add_products(total[rows1, rows1], held, held)

    def diag(self, x: Tensor, fields: Sequence[Sequence[Tensor]]) -> Tensor:
        """Return the diagonal of ``gram(x, None, fields)``, shape (n,)."""
        total = self.theta.new_zeros(len(x))
        for frames in self._frames(fields):
            for rows in row_blocks(len(x), self._rows_at_once(4 * len(frames[0]), len(frames[0]))):
                for frame in frames:
                    parts = self.rows(x[rows], frame)
                    total[rows] += sum((a * b).sum(1) for a, b in zip(parts, reversed(parts), strict=True))
        return total

    def _held(self, x: Tensor, frame: Frame, few: int) -> Tensor:
        """Return ``rows(x, frame)`` in one tensor, shape (2^k, n, P), computed a few rows at a time."""
        held = self.theta.new_empty(len(frame), len(x), len(self.theta))
        for rows in row_blocks(len(x), few):
            for part, found in zip(held, self.rows(x[rows], frame), strict=True):
                part[rows] = found
        return held

    def _frames(self, fields: Sequence[Sequence[Tensor]]) -> Iterator[list[list[Tensor]]]:
        """Yield the frames of the fields, as many at a time as a quarter of the budget holds."""
        size = 2 ** len(fields[0]) * self.theta.numel() * self.theta.element_size()
        for part in row_blocks(len(fields), max(1, self.byte_budget // (4 * size))):
            yield [self.frame(vectors) for vectors in fields[part]]

    def _gradient(self, theta: Tensor, row: Tensor) -> Tensor:
        found: Tensor = grad(lambda point: self.outputs(point, row[None])[0])(theta)
        return found

    def _agrees(self, found: Tensor, x: Tensor, frame: Frame) -> bool:
        """Compare once for each shape with derivatives without vmap, which may be silently wrong for some numbers of rows."""
        key = (len(x), len(frame))
        if key in self._compared:
            return True
        weights = torch.randn(len(x), generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(found)
        difference = (weights @ found - self.pull(weights, x, frame)).norm()
        if bool(difference > torch.finfo(found.dtype).eps ** 0.5 * found.norm()):
            return False
        self._compared.add(key)
        return True

    def _rows_at_once(self, derivatives: int, frame: int) -> int:
        """Return how many rows to take at a time, given the derivatives held per row and the entries of a frame."""
        if self._row_bytes is None:
            self._row_bytes = self._activations(2) - self._activations(1)
        row = self.theta.numel() * self.theta.element_size()
        # Each jvp doubles what is kept for the backward pass.
        return max(1, self.byte_budget // (derivatives * row + 3 * frame * self._row_bytes + 1))

    def _activations(self, rows: int) -> int:
        """Return the bytes that one backward pass keeps for some rows."""
        held = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal held
            held += tensor.numel() * tensor.element_size()
            return tensor

        x = self.x[:1].expand(rows, *self.x.shape[1:])
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.outputs(self.theta.clone().requires_grad_(), x)
        return held


def _add_products(total: Tensor, first: Sequence[Tensor] | Tensor, second: Sequence[Tensor] | Tensor) -> None:
    """Add sum_S (V_S J1) (V_rest J2)^T, Leibniz' rule for V_k ... V_1 (J1 J2^T), in place."""
    for a, b in enumerate(range(len(first) - 1, -1, -1)):
        total += first[a] @ second[b].T


def _vector(network: Network) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in network.trained.values()])


def _derivatives(function: Callable[[Tensor], Tensor], frame: Frame) -> list[Tensor]:
    """Return the derivatives along every set of the frame's vectors: one half of the frame says how the other half moves."""
    if len(frame) == 1:
        return [function(frame[0])]
    half = len(frame) // 2
    found = jvp(lambda *low: _derivatives(function, low), tuple(frame[:half]), tuple(frame[half:]))
    return [*found[0], *found[1]]


@contextmanager
def _differentiable() -> Iterator[None]:
    """Make torch use operations whose derivatives of every order are right."""
    # Fused attention has no forward-mode derivatives.
    with torch.no_grad(), warnings.catch_warnings(), plain_attention(), Elementary():
        warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
        yield
