"""A program for a window of its output: every node is computed only where that window reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ntkit._src.program import Node, Program, Reindex

from ._plan import plan_of
from ._rule import Cut, Prefixes, Window


def cropped(program: Program, window: Sequence[range]) -> Program:
    """Return a program whose output is that of ``program`` in a window, one range for each axis of the last node.

    If an operation must be computed whole, so is the program, and the window is taken from its output.
    """
    prefixes = list(program.prefixes)
    found = _cuts(program, tuple(window), prefixes)
    nodes = list(program.nodes)
    if found is None:
        nodes += _selections(nodes[-1], len(nodes) - 1, _all(nodes[-1].positions), tuple(window), len(nodes))
        return replace(program, nodes=tuple(nodes))
    windows, cuts = found
    made: list[Node] = []
    place: dict[int, int] = {}
    for index, cut in sorted(cuts.items()):
        inputs = []
        for read, needed in zip(nodes[index].inputs, cut.reads, strict=True):
            made += _selections(made[place[read]], place[read], windows[read], needed, len(made))
            inputs.append(place[read] if windows[read] == needed else len(made) - 1)
        positions = tuple(map(len, windows[index]))
        place[index] = len(made)
        made.append(replace(nodes[index], op=cut.op, inputs=tuple(inputs), positions=positions))
    return replace(program, nodes=tuple(made), prefixes=tuple(prefixes))


def _cuts(program: Program, window: Window, prefixes: Prefixes) -> tuple[dict[int, Window], dict[int, Cut]] | None:
    """Return the window of each node that is read, and its operation there; None if an operation must be computed whole."""
    windows, cuts = {program.output: window}, {}
    for step in reversed(plan_of(program).steps):
        if step.index not in windows:
            continue
        own = windows[step.index]
        cut = step.rule.crop(step, own, prefixes)
        if cut is None:
            if own != _all(step.node.positions):
                return None
            cut = Cut(step.op, tuple(_all(source.node.positions) for source in step.sources))
        cuts[step.index] = cut
        for read, needed in zip(step.node.inputs, cut.reads, strict=True):
            windows[read] = _hull(windows.get(read, needed), needed)
    return windows, cuts


def _selections(node: Node, index: int, known: Window, needed: Window, at: int) -> list[Node]:
    """Return nodes that select a window of a node computed in a larger window; the first gets index ``at``."""
    made: list[Node] = []
    for axis, (have, want) in enumerate(zip(known, needed, strict=True)):
        if have != want:
            chosen = tuple(p - have.start for p in want)
            positions = (*node.positions[:axis], len(want), *node.positions[axis + 1 :])
            node = replace(node, op=Reindex(axis, chosen, "window"), inputs=(index,), positions=positions)
            index = at + len(made)
            made.append(node)
    return made


def _all(positions: Sequence[int]) -> Window:
    return tuple(range(size) for size in positions)


def _hull(first: Window, second: Window) -> Window:
    return tuple(range(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(first, second, strict=True))
