"""Whether a program has a tangent kernel."""

from __future__ import annotations

from ntkit.errors import Problem, UnsupportedLayerError
from ntkit.program import Elementwise, Program

__all__ = ["check_differentiable"]


def check_differentiable(program: Program) -> None:
    """Refuse a tangent kernel through an activation whose derivative is zero or infinite."""
    problems = tuple(
        Problem(
            node.path,
            str(node.op.phi),
            "its derivative is zero or infinite, so a tangent kernel through it does not exist",
            "use limit.nngp, or freeze every parameter before it",
        )
        for node in program.nodes
        if isinstance(node.op, Elementwise)
        and node.op.phi.name in ("sign", "step")
        and program.nodes[node.inputs[0]].trained
    )
    if problems:
        raise UnsupportedLayerError(problems)
