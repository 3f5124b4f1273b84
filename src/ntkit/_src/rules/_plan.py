"""What the reference engine knows of a program before it sees data: computed once, and kept as long as the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ntkit._src.program import Keep, Keeps, Program, entries

from . import _activation, _affine, _attention, _combine, _fixed_norm, _input, _normalize, _positions, _shared, _tokens
from ._rule import RULES, Step

FAMILIES = (_activation, _affine, _attention, _combine, _fixed_norm, _input, _normalize, _positions, _shared, _tokens)
"""The modules that enter their rules in ``RULES``."""


@dataclass(frozen=True)
class Schedule:
    """What to compute for one choice of what is kept of each covariance."""

    reads: tuple[tuple[tuple[int, Keeps], ...], ...]  # for each node the nodes it reads, and what it needs of them
    pair_bytes: tuple[int, int]  # memory of one pair of inputs while the program runs, without and with Theta


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps of a program, and what the rules read of each single input."""

    steps: tuple[Step[Any], ...]
    demands: Mapping[int, Keeps]  # what some rule reads of K(x, x) of one input, by node
    variances: frozenset[int]  # the nodes whose variances some rule reads
    means: bool  # whether some rule reads the means of channels that are not centred
    _schedules: dict[tuple[Keeps | None, ...], Schedule] = field(default_factory=dict, repr=False)

    def schedule(self, keeps: tuple[Keeps | None, ...]) -> Schedule:
        """Return what to compute if ``keeps`` is kept."""
        found = self._schedules.get(keeps)
        if found is None:
            found = self._schedules[keeps] = Schedule(
                tuple(step.reads(kept) for step, kept in zip(self.steps, keeps, strict=True)),
                (self._pair_bytes(keeps, 2), self._pair_bytes(keeps, 3)),
            )
        return found

    def _pair_bytes(self, keeps: tuple[Keeps | None, ...], tensors: int) -> int:
        """Estimate the memory of one pair of inputs if each covariance has a number of tensors: K, H and perhaps Theta."""
        counts = [entries(step.node.positions, kept) for step, kept in zip(self.steps, keeps, strict=True)]
        peak, live = 1, 0
        for step, kept in zip(self.steps, keeps, strict=True):
            own = counts[step.index]
            largest = max([own, *(counts[read] for read in step.node.inputs)])
            extra = 0 if kept is None else step.rule.workspace(step.op, step.node.positions, kept)
            peak = max(peak, tensors * (live + own) + step.rule.temporaries * largest + extra)
            live += own - sum(counts[read] for read in step.frees)
        return peak * torch.finfo(torch.float64).bits // 8


_PLANS: WeakKeyDictionary[Program, Plan] = WeakKeyDictionary()


def plan_of(program: Program) -> Plan:
    """Return the plan of a program, which is computed on the first call."""
    plan = _PLANS.get(program)
    if plan is None:
        plan = _PLANS[program] = _plan(program)
    return plan


def _plan(program: Program) -> Plan:
    nodes = program.nodes
    carries, scales = _carries_h(program), _scales(program)
    last_use = {read: index for index, node in enumerate(nodes) for read in node.inputs}
    steps: list[Step[Any]] = []
    variances: set[int] = set()
    for index, node in enumerate(nodes):
        rule, sources = RULES[type(node.op)], tuple(steps[read] for read in node.inputs)
        frees = tuple(read for read in dict.fromkeys(node.inputs) if last_use[read] == index)
        steps.append(Step(index, node, node.op, rule, sources, carries[index], scales[index], frees))
        if rule.reads_variance(node.op):
            variances |= set(node.inputs)
        if carries[index] and not scales[index]:  # the H of a multiple of x becomes that of x
            variances |= {read for read in node.inputs if scales[read]}
    return Plan(tuple(steps), program.own_demands, frozenset(variances), program.means_needed)


def _carries_h(program: Program) -> list[bool]:
    """Return for each node whether to compute H: the inputs that its K is computed from have it, and an activation reads it."""
    gives: list[bool] = []
    for node in program.nodes:
        needs = node.op.needs((Keep.SAME,) * len(node.positions))
        there = all(gives[read] for read, needed in zip(node.inputs, needs, strict=True) if needed is not None)
        gives.append(there and RULES[type(node.op)].gives_h(node.op))
    read = [False] * len(gives)
    for index in reversed(range(len(gives))):
        node = program.nodes[index]
        if RULES[type(node.op)].reads_h or (read[index] and gives[index]):
            for source in node.inputs:
                read[source] = True
    return [there and wanted for there, wanted in zip(gives, read, strict=True)]


def _scales(program: Program) -> list[bool]:
    """Return for each node whether r times the data give r times its values: without biases, up to the first normalisation."""
    scales: list[bool] = []
    for node in program.nodes:
        inputs = all(scales[read] for read in node.inputs)
        scales.append(RULES[type(node.op)].scales(node.op, inputs and bool(node.inputs)))
    data = {node.op for node, own in zip(program.nodes, scales, strict=True) if own and not node.inputs}
    return scales if len(data) == 1 else [False] * len(scales)  # several fields of data have several ratios
