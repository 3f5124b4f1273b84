"""How much a tape computes for one pair of inputs: entries of covariances, and arithmetic operations."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from . import _core

_RECTIFIED = {(True, True): 39, (True, False): 25, (False, True): 73, (False, False): 41}
"""Operations of a ReLU for one entry, by single precision and by whether there is a tangent kernel.

Counted in ``core/interpreter/rectifier.hpp``: 15 before the root (12 without tangent kernel), the root, 2 for each degree of the
polynomials in ``core/arc_cosine.hpp`` (4 and 4 in single precision, 12 and 13 in double), 4 for the covariance, 3 for the tangent
kernel.
"""


def rectified_entries(tape: _core.Tape) -> int:
    """Count the entries of covariances that ReLU-like activations compute for one pair of inputs: those that the output needs."""
    return sum(entries for entries, _, _ in _rectified(tape))


def rectified_operations(tape: _core.Tape, single: bool) -> int:
    """Count the arithmetic operations of ReLU-like activations, and of the sums over windows before them, for one pair."""
    # These are nearly all operations of a convolutional network. An addition, a product, a division and a root count as one
    # each, so a fused multiplication and addition as two; double precision (not ``single``) needs longer polynomials.
    return sum(
        entries * (_RECTIFIED[single, theta] + (1 + theta) * additions)
        for entries, additions, theta in _rectified(tape)
    )


def _rectified(tape: _core.Tape) -> Iterator[tuple[int, int, bool]]:
    """Yield for each plane of an activation its entries, additions per entry of the window before it, and if it has a Theta."""
    for step in tape.instructions:
        operation = tape.operations[step.operation]
        if isinstance(operation, _core.Layer) and operation.activation is not None:
            size, additions = operation.out_size, prod(operation.kernel[:-1]) + operation.kernel[-1] - 2
        elif isinstance(operation, _core.Rectified):
            size, additions = operation.size, 0
        else:
            continue
        entries = prod(length - abs(offset) for length, offset in zip(size, step.out_offset, strict=True))
        yield entries // tape.batch, additions, step.theta_out
