"""Tiny networks for tests of the planner, and what their tapes do, as short text."""

import ntkit
from ntkit.native import _core
from ntkit.native._network import Network


def network(net, *shape, **gains):
    return Network(ntkit.infinite_width(net, **gains)._tracer.program(shape))


def of_type(network, kind):
    """The nodes whose operation is of one type."""
    return [index for index, node in enumerate(network.program.nodes) if isinstance(node.op, kind)]


def steps(plan):
    """Each instruction as "kind offset read -> offset written"; offsets of one axis, from the last."""
    found = []
    for step in plan.tape.instructions:
        text = step.kind.name.lower()
        if step.in_slot != _core.NOTHING and step.kind != _core.Kind.SETTLE:
            text += f" {'K' if step.covariance_in else 'H'}{step.in_offset[2]}"
        if step.out_slot != _core.NOTHING and step.kind != _core.Kind.CLEAR:
            text += f" -> {'K' if step.covariance_out else 'H'}{step.out_offset[2]}"
        found.append(text)
    return found
