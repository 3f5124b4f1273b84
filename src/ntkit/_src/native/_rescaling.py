"""Where the data have a scale of their own.

Two inputs that are nearly parallel but of different norm have a large H, which has lost their angle; scaled to norm one, they
have a small one, which has not. Without biases, every value of a ReLU-like network scales along with its input. A bias does not;
it is scaled with its input instead, and a small input is scaled less, so that its bias does not exceed everything else.

So if a rectifier or a normalisation, which reads the angle, comes before the first bias, data are scaled to norm one up to
there. Where a value that scales along is read by one that does not, a :class:`Rescale` changes to the common scale. A
normalisation needs none: it divides the scale away.
"""

from __future__ import annotations

from dataclasses import replace

from ntkit._src.program import DataMap, Input, Lookup, Node, Normalize, Program

from .families import Rescale, family_of


def scaling(program: Program) -> tuple[bool, ...]:
    """Return for each node whether r times the data give r times its values."""
    found: list[bool] = []
    for node in program.nodes:
        family = family_of(node.op)
        along = isinstance(node.op, Input) or (bool(node.inputs) and all(found[read] for read in node.inputs))
        found.append(along and family is not None and family.homogeneous(node.op))
    return tuple(found)


def with_rescaling(program: Program) -> Program:
    """Insert the changes of scale that a program needs; most need none and are returned as they are."""
    if any(isinstance(node.op, (Lookup, DataMap)) for node in program.nodes):
        return program  # such data have no scale
    along = scaling(program)
    if along[program.output] or not any(
        (family := family_of(node.op)) is not None and family.reads_angle and all(along[read] for read in node.inputs)
        for node in program.nodes
    ):
        return program
    nodes: list[Node] = []
    new: list[int] = []  # where each node went
    rescaled: dict[int, int] = {}
    for index, node in enumerate(program.nodes):
        inputs = []
        for read in node.inputs:
            if not along[read] or along[index] or isinstance(node.op, Normalize):
                inputs.append(new[read])
                continue
            if read not in rescaled:
                before = program.nodes[read]
                rescaled[read] = len(nodes)
                nodes.append(replace(before, op=Rescale(), inputs=(new[read],)))
            inputs.append(rescaled[read])
        new.append(len(nodes))
        nodes.append(replace(node, inputs=tuple(inputs)))
    return Program(tuple(nodes), program.prefixes, program.layout)
