"""Two programs of one module, traced for inputs of different sizes, node by node: what their covariance is computed with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ._positions import ConstantMap, Contract, PositionMap, Reindex
from ._program import Keep, Keeps, Node, Program, joined_keeps

Owners = Mapping[int, tuple[str, ...]]
"""For the nodes of a program that apply parameters, the paths of these."""


class Unpaired(Exception):
    """Raised where two programs have no common covariance; the path, the operation, and why."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(reason)
        self.path, self.what, self.reason = node.path, node.op.label(), reason


@dataclass(frozen=True, eq=False)
class Pair:
    """Programs with the same operations and parameters, whose node i holds the same value of inputs of two sizes.

    A covariance between them has P1 rows and P2 columns along an axis of positions; K[p, p] exists only where P1 = P2.
    """

    first: Program
    second: Program
    keeps: tuple[Keeps | None, ...]  # what is kept of K(x, x'), for each node
    own: tuple[Program, Program]  # the same nodes as each input alone needs them


def pair_programs(first: Program, owners1: Owners, second: Program, owners2: Owners) -> Pair:
    """Match the nodes of two programs; a map of positions that only one of them has is the identity of the other.

    Whatever the matching, each input runs through its own operations; what must agree are the random ones: node by node the same
    operation with the same parameters. So a wrong match raises :class:`Unpaired` and never gives another kernel.
    """
    programs, owners = (first, second), (owners1, owners2)
    nodes: tuple[list[Node], list[Node]] = ([], [])
    places: tuple[dict[int, set[int]], dict[int, set[int]]] = (
        {},
        {},
    )  # of the pair that hold the value of a program's node
    at = [0, 0]

    def here(side: int) -> Node | None:
        return programs[side].nodes[at[side]] if at[side] < len(programs[side].nodes) else None

    def append(*both: Node) -> int:
        for made, node in zip(nodes, both, strict=True):
            made.append(node)
        return len(nodes[0]) - 1

    def advance(side: int, place: int) -> None:
        places[side][at[side]] = {place}
        at[side] += 1

    def matched() -> bool:
        one, other = here(0), here(1)
        if one is None or other is None or not one.op.alike(other.op) or len(one.inputs) != len(other.inputs):
            return False
        if len(one.positions) != len(other.positions):
            return False
        common = [places[0][i] & places[1][j] for i, j in zip(one.inputs, other.inputs, strict=True)]
        if not all(common) or owners[0].get(at[0], ()) != owners[1].get(at[1], ()):
            return False
        inputs = tuple(map(max, common))
        place = append(replace(one, inputs=inputs), replace(other, inputs=inputs))
        advance(0, place)
        advance(1, place)
        return True

    def left_out(side: int) -> bool:
        """Take a map of positions that the other side leaves out, with an identity there."""
        node, other = here(side), 1 - side
        if node is None or not isinstance(node.op, PositionMap):
            return False
        source = max(places[side][node.inputs[0]])
        known = nodes[other][source]
        axis, size = node.op.axis, known.positions[node.op.axis]
        same = ConstantMap.of(axis, torch.eye(size), "identity")
        op = Reindex(axis, tuple(range(size)), "identity") if node.op.selects else same
        both = replace(node, inputs=(source,)), replace(known, op=op, inputs=(source,), path=node.path)
        place = append(*(both if side == 0 else both[::-1]))
        for held in places[other].values():
            if source in held:
                held.add(place)
        advance(side, place)
        return True

    while here(0) is not None or here(1) is not None:
        if not (matched() or left_out(0) or left_out(1)):
            where = here(0) or here(1)
            assert where is not None
            raise Unpaired(
                where, "for inputs of other sizes the module does something else there, or with other parameters"
            )
    last = len(nodes[0]) - 1
    if not all(last in places[side][programs[side].output] for side in (0, 1)):
        raise Unpaired(nodes[0][last], "for inputs of other sizes the module does something else there")
    one, other = (replace(own, nodes=tuple(made)) for own, made in zip((first, second), nodes, strict=True))
    # Without identities the programs stay themselves, with their plans.
    one, other = (own if len(own.nodes) == len(made.nodes) else made for own, made in ((first, one), (second, other)))
    own = one, other
    one, other = _whole(one, other), _whole(other, one)
    keeps = tuple(joined_keeps(a, b) for a, b in zip(one.cross_keeps, other.cross_keeps, strict=True))
    _check_sizes(one, other, keeps)
    return Pair(one, other, keeps, own)


def _whole(program: Program, other: Program) -> Program:
    """Let choices of positions, such as that of a class token, read all of them where the other program has others."""
    nodes = list(program.nodes)
    for index, node in enumerate(nodes):
        read = node.inputs[0] if node.inputs else index
        if isinstance(node.op, Reindex) and nodes[read].positions != other.nodes[read].positions:
            nodes[index] = replace(node, op=replace(node.op, whole=True))
    return program if nodes == list(program.nodes) else replace(program, nodes=tuple(nodes))


def _check_sizes(first: Program, second: Program, keeps: Sequence[Keeps | None]) -> None:
    """Refuse K[p, p] along an axis with different numbers of positions."""
    for node, other, kept in reversed([*zip(first.nodes, second.nodes, keeps, strict=True)]):  # the cause comes last
        if kept is None:
            continue
        needs = [(node, other, kept)]
        for read, needed in zip(node.inputs, node.op.needs(kept), strict=True):
            if needed is not None:
                needs.append((first.nodes[read], second.nodes[read], needed))
        for one, two, need in needs:
            axes = zip(one.positions, two.positions, need, strict=True)
            if any(a != b and keep is Keep.SAME for a, b, keep in axes):
                raise Unpaired(node, _unshared(node, one.positions, two.positions))


def _unshared(node: Node, first: tuple[int, ...], second: tuple[int, ...]) -> str:
    sizes = f"inputs of {'x'.join(map(str, first))} and {'x'.join(map(str, second))} positions"
    if isinstance(node.op, Contract) and node.op.name == "mean over positions":
        return f"the module's output keeps its positions, and {sizes} have none in common to average over"
    if isinstance(node.op, Contract):
        return (
            f"positions become channels, which the layer after it weighs one by one: {sizes} share no parameters there"
        )
    return f"it relates each position to the same one of the other input, and {sizes} have others"
