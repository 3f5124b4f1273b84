"""Whether a program has a tangent kernel."""

from __future__ import annotations

from ntkit._src.program import Activation, Attention, Op, Pointwise, Program
from ntkit.errors import Problem, UnsupportedLayerError


def check_differentiable(program: Program) -> None:
    """Refuse a tangent kernel through an activation whose derivative is zero or infinite."""
    problems = tuple(
        Problem(
            node.path,
            str(phi),
            "its derivative is zero or infinite, so a tangent kernel through it does not exist",
            "use limit.nngp, or freeze every parameter before it",
        )
        for node in program.nodes
        if (phi := _activation(node.op)) is not None
        and not phi.differentiable
        and program.nodes[node.inputs[0]].trained
    )
    if problems:
        raise UnsupportedLayerError(problems)


def _activation(op: Op) -> Activation | None:
    """Return the activation whose derivative the tangent kernel needs."""
    if isinstance(op, Pointwise):
        return op.phi
    return op.phi if isinstance(op, Attention) and op.scaling == "sqrt" else None
