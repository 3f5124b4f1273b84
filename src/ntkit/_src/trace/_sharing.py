"""Layers called more than once: the part of a program whose values depend on each other becomes one operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations

from torch import Tensor

from ntkit._src.program import (
    Concat,
    Input,
    Join,
    Keep,
    Keeps,
    Node,
    Normalize,
    NoSharedRule,
    Program,
    Shared,
    Source,
    Sum,
)
from ntkit.errors import Problem, UnsupportedLayerError


def share(
    program: Program,
    sources: Sequence[frozenset[int]],
    calls: Sequence[int | None],
    cuts: Sequence[tuple[int, int] | None],
    affine: Sequence[str],
    instead: str,
) -> Program:
    """Replace what needs covariances between different nodes by one :class:`Shared` operation.

    The arguments after the program say for each node what it depends on, which layer it calls, which range of its input's
    channels it is, and whether a trained weight multiplies it; ``instead`` is what to use where there is no closed form.
    Calls of one layer that never meet, such as those of a chain, stay as they are: then each value's own covariance is that of
    separate layers.
    """
    named = [call for call in calls if call is not None]
    if len(set(named)) == len(named):
        return program
    program, kept = _split_data(program, calls)
    sources, calls = [sources[index] for index in kept], [calls[index] for index in kept]
    cuts, affine = [cuts[index] for index in kept], [affine[index] for index in kept]
    whole = Shared(program.nodes, 0, tuple(sources), tuple(calls), tuple(cuts))
    demands: dict[int, Keeps] = {}
    while True:
        try:
            members = _meeting(program, whole, demands)
        except NoSharedRule as missing:
            raise _meet(whole, missing, instead) from None
        if not members:
            return program
        members, output = _part(program, members)
        given = sorted({read for index in members for read in program.nodes[index].inputs} - members)
        if demands.keys() >= set(given):
            break
        # The part reads its inputs between all positions: steps stacked before it may meet there though they did not before.
        demands |= {read: (Keep.ALL,) * len(program.nodes[read].positions) for read in given}
    for read in given:
        if affine[read]:
            raise _unsupported(
                program.nodes[read], "a norm with a trained weight comes between it and a layer called twice", instead
            )
    order = [*given, *sorted(members)]
    place = {index: number for number, index in enumerate(order)}
    inner = tuple(
        replace(program.nodes[index], inputs=tuple(place[read] for read in program.nodes[index].inputs))
        if index in members
        else replace(program.nodes[index], inputs=())
        for index in order
    )
    body = Shared(
        inner,
        len(given),
        tuple(sources[index] for index in order),
        tuple(calls[index] for index in order),
        tuple(cuts[index] for index in order),
    )
    try:
        _ = body.alone, body.between
    except NoSharedRule as missing:
        raise _meet(body, missing, instead) from None
    nodes = dict(enumerate(program.nodes))
    nodes[output] = replace(nodes[output], op=body, inputs=tuple(given))
    kept = _needed(nodes, program.output)
    place = {index: number for number, index in enumerate(kept)}
    renumbered = (replace(nodes[index], inputs=tuple(place[read] for read in nodes[index].inputs)) for index in kept)
    return replace(program, nodes=tuple(renumbered))


def _split_data(program: Program, calls: Sequence[int | None]) -> tuple[Program, list[int]]:
    """Write data that a layer reads in one call as its parts, if it reads a concatenation of such parts in another call.

    Returns for each node of the new program the one of the old that it is or is a part of.
    """
    reads: dict[int, set[int]] = {}
    for index, call in enumerate(calls):
        if call is not None:
            reads.setdefault(call, set()).add(program.nodes[index].inputs[0])
    parts: dict[int, tuple[float, ...]] = {}
    for found in reads.values():
        ops = {read: program.nodes[read].op for read in found}
        fractions = next((op.fractions for op in ops.values() if isinstance(op, Concat)), None)
        if fractions is not None:
            parts |= {read: fractions for read, op in ops.items() if isinstance(op, Input)}
    nodes: list[Node] = []
    prefixes, kept = list(program.prefixes), list[int]()
    place: dict[int, int] = {}
    for index, node in enumerate(program.nodes):
        if index in parts:
            assert isinstance(node.op, Input)
            first, start = len(nodes), 0
            for fraction in parts[index]:
                width = round(fraction * node.op.channels)
                prefixes.append(partial(_narrowed, prefixes[node.op.prefix], node.op.channel, start, width))
                nodes.append(replace(node, op=Input(len(prefixes) - 1, node.op.channel, width)))
                start += width
            node = replace(node, op=Concat(parts[index]), inputs=tuple(range(first, len(nodes))))
            kept += [index] * len(node.inputs)
        else:
            node = replace(node, inputs=tuple(place[read] for read in node.inputs))
        place[index] = len(nodes)
        nodes.append(node)
        kept.append(index)
    return replace(program, nodes=tuple(nodes), prefixes=tuple(prefixes)), kept


def _narrowed(prefix: Callable[[Tensor], Tensor] | None, channel: int, start: int, width: int, x: Tensor) -> Tensor:
    """Run what comes before the first layer, and take a range of its channels."""
    return (x if prefix is None else prefix(x)).narrow(channel, start, width)


def _meeting(program: Program, whole: Shared, demands: Mapping[int, Keeps]) -> set[int]:
    """Return the nodes of all pairs of different values whose covariance is needed, and those that need it.

    ``demands`` says what is needed of some nodes besides what the program itself needs.
    """
    members: set[int] = set()
    stack: list[tuple[int, int]] = []
    named = Counter(call for call in whole.calls if call is not None)
    repeated = {i for i, call in enumerate(whole.calls) if call is not None and named[call] > 1}
    tied = frozenset[int]().union(*(whole.sources[i] for i in repeated))
    kept = zip(program.diag_keeps, program.requirements(demands), strict=True)
    for index, (node, both) in enumerate(zip(program.nodes, kept, strict=True)):
        if not isinstance(
            node.op, (Sum, Join, Concat, Normalize)
        ):  # rules of other operations take their inputs as independent
            for first, second in combinations(dict.fromkeys(node.inputs), 2):
                if whole.sources[first] & whole.sources[second] & tied:
                    raise NoSharedRule((index, index))
        needed = [keeps for keeps in both if keeps is not None]
        joins = isinstance(node.op, Join) and any(keeps[node.op.axis] is Keep.ALL for keeps in needed)
        if needed and (isinstance(node.op, Sum) or joins):
            pairs = [pair for pair in permutations(dict.fromkeys(node.inputs), 2) if whole.dependent(*pair)]
            members |= {index} if pairs else set()
            stack += pairs
    found: set[tuple[int, int]] = set()
    while stack:
        pair = stack.pop()
        if pair in found or pair[0] == pair[1] or not whole.dependent(*pair):
            continue
        found.add(pair)
        stack += whole.terms(*pair)
    return members.union(*found)


def _part(program: Program, members: set[int]) -> tuple[set[int], int]:
    """Add nodes to some until only one of them, which is returned too, is read by others."""
    readers: list[set[int]] = [set() for _ in program.nodes]
    for index, node in enumerate(program.nodes):
        for read in node.inputs:
            readers[read].add(index)
    while True:
        members = _closed(program, readers, members)
        outputs = {
            index
            for index in members
            if not isinstance(program.nodes[index].op, Source) and (index == program.output or readers[index] - members)
        }
        if len(outputs) == 1:
            return members, outputs.pop()
        members |= {reader for index in outputs for reader in readers[index]}


def _closed(program: Program, readers: Sequence[set[int]], members: set[int]) -> set[int]:
    """Add every node between two members; of the sources, keep only data."""
    after, before = set(members), set(members)
    for index, node in enumerate(program.nodes):
        if after & set(node.inputs):
            after.add(index)
    for index in reversed(range(len(program.nodes))):
        if before & readers[index]:
            before.add(index)
    closed = after & before
    ops = {index: program.nodes[index].op for index in closed}
    return {index for index in closed if isinstance(ops[index], Input) or not isinstance(ops[index], Source)}


def _needed(nodes: dict[int, Node], output: int) -> list[int]:
    needed, stack = set[int](), [output]
    while stack:
        index = stack.pop()
        if index not in needed:
            needed.add(index)
            stack.extend(nodes[index].inputs)
    return sorted(needed)


def _meet(body: Shared, missing: NoSharedRule, instead: str) -> UnsupportedLayerError:
    first, second = (body.nodes[index] for index in sorted(missing.pair))
    if missing.pair[0] == missing.pair[1]:
        return _unsupported(
            second, "what it reads comes from several calls of one layer, and it has no rule for that", instead
        )
    return _unsupported(
        second,
        f"its values depend on those of {first.op.label()} at {first.path!r}, since a layer is called more than once, and the "
        "covariance between the two has no closed form",
        instead,
    )


def _unsupported(node: Node, reason: str, instead: str) -> UnsupportedLayerError:
    return UnsupportedLayerError(
        (Problem(node.path, node.op.label(), reason, f"give each call its own layer; or {instead}"),)
    )
