"""The reference engine: a program executed in plain torch, in float64, on any device, differentiable.

First each input is paired with itself (:func:`moments`), which yields the variances that activations and normalisations
read; then the two batches are paired (:func:`covariance`). Both passes run the same rules. :func:`random_features` runs those
for features instead: phi for the NNGP kernel, psi for the tangent kernel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ntkit._src.program import Keep, Keeps, Pair, Program
from ntkit.errors import Problem, UnsupportedLayerError

from ._covariance import Covariance, Ends, Moments
from ._plan import Plan, plan_of
from ._rule import RULES, Step
from ._sketch import Draws, Features


def read_data(program: Program, x: Tensor) -> Moments:
    """Run the deterministic prefixes on a batch."""
    # Near correlation one, a kernel loses half of its digits: float64 if the device supports it.
    dtype = torch.float32 if x.device.type == "mps" else torch.float64
    x = x.to(dtype) if x.is_floating_point() else x
    data: dict[tuple[int, int], Tensor] = {}
    for node in program.nodes:
        if type(node.op) in RULES:  # programs of the native engine have operations of their own, which read no data
            data |= RULES[type(node.op)].read(program, node, x, dtype)
    return Moments(data)


def moments(program: Program, data: Moments, keeps: tuple[Keeps | None, ...] | None = None) -> Moments:
    """Compute the variances and means that the rules read of each input."""
    filled = Moments(data.data)
    _run(program, keeps or program.self_keeps, Ends(filled, filled, pair_dims=1), ntk=False)
    return filled


def variances(program: Program, data: Moments, nodes: frozenset[int]) -> dict[int, Tensor]:
    """Compute the variances K[p, p] of some nodes' values, shape (n, *positions) each."""
    filled = Moments(data.data)
    _run(program, variance_keeps(program, nodes), Ends(filled, filled, pair_dims=1), ntk=False, also=nodes)
    return {node: filled.variance[node] for node in nodes}


def variance_keeps(program: Program, nodes: frozenset[int]) -> tuple[Keeps | None, ...]:
    """Return what :func:`variances` keeps of K(x, x) of one input, for each node."""
    own = dict.fromkeys(nodes, ()) | program.own_demands
    return program.requirements({n: own[n] or (Keep.SAME,) * len(program.nodes[n].positions) for n in own})


def self_covariance(program: Program, data: Moments, ntk: bool) -> Covariance:
    """Compute K(x, x) and Theta(x, x) of each input, shape (n,)."""
    filled = Moments(data.data)
    result = _run(program, program.diag_keeps, Ends(filled, filled, pair_dims=1), ntk)
    assert result is not None
    return result


def covariance(
    program: Program | Pair, first: Moments, second: Moments, ntk: bool, keeps: tuple[Keeps | None, ...] | None = None
) -> Covariance:
    """Compute K(x, x') and Theta(x, x') between two batches whose moments are known, shape (n1, n2).

    A pair of programs computes it between inputs of two sizes.
    """
    if isinstance(program, Pair):
        ends = Ends(first, second, pair_dims=2, others=program.second.nodes)
        result = _run(program.first, keeps or program.keeps, ends, ntk)
    else:
        result = _run(program, keeps or program.cross_keeps, Ends(first, second, pair_dims=2), ntk)
    assert result is not None
    return result


def _run(
    program: Program, keeps: tuple[Keeps | None, ...], ends: Ends, ntk: bool, also: frozenset[int] = frozenset()
) -> Covariance | None:
    plan = plan_of(program)
    reads = plan.schedule(keeps).reads
    values: dict[int, Covariance] = {}
    for step in plan.steps:
        kept = keeps[step.index]
        if kept is not None:
            inputs = tuple(_given(step, read, values[read].restrict(need), ends) for read, need in reads[step.index])
            values[step.index] = _apply(step, inputs, kept, ends, ntk)
        if ends.pair_dims == 1:
            _record(plan, step, values.get(step.index), ends.first, step.index in also)
        for read in step.frees:
            values.pop(read, None)
    result = values.get(program.output)
    return None if result is None else result.settled()


def _given(step: Step[Any], read: int, x: Covariance, ends: Ends) -> Covariance:
    """Return an input's covariance with the H that the step reads: that of r x and x', that of x and x', or none."""
    if x.h is None and x.ratio is None:
        return x
    if not step.carries_h:
        return x if step.rule.reads_h else x.without_h()
    return x if step.scales or step.rule.reads_ratio else x.at_one(ends.variances(read, x.keeps))


def _apply(step: Step[Any], inputs: tuple[Covariance, ...], keeps: Keeps, ends: Ends, ntk: bool) -> Covariance:
    result = step.rule.covariance(step, inputs, keeps, ends)
    if not ntk and (result.ntk is not None or result.affine is not None):
        result = replace(result, ntk=None, affine=None)
    return result if step.carries_h else result.without_h()


def _record(plan: Plan, step: Step[Any], value: Covariance | None, own: Moments, wanted: bool) -> None:
    """Keep what some rule reads of each input's own covariance."""
    demand = plan.demands.get(step.index)
    if value is not None and (wanted or demand is not None or step.index in plan.variances):
        same = value.restrict((Keep.SAME,) * len(value.keeps))
        own.variance[step.index] = same.nngp.contiguous()  # a copy: a view would keep all position pairs alive
        if demand is not None and Keep.ALL in demand:
            own.own[step.index] = value.restrict(demand).nngp
    if plan.means and not step.node.centred:
        mean = step.rule.mean(step, own)
        if mean is not None:
            own.mean[step.index] = mean


def random_features(program: Program, x: Tensor, ntk: bool, draws: Draws) -> Tensor:
    """Return features of a batch whose products estimate Theta, or K if ``ntk`` is False, shape (n, d).

    They are those of Zandieh et al. 2021 and Han et al. 2022.
    """
    data = Moments({key: value.to(x.dtype) for key, value in read_data(program, x).data.items()})
    values: list[Features] = []
    for step in plan_of(program).steps:
        inputs = tuple(values[read] for read in step.node.inputs)
        values.append(step.rule.random_features(step, inputs, data, draws))
    phi, psi = values[-1].phi, values[-1].psi
    if not ntk:
        return phi
    return phi.new_zeros(len(x), 1) if psi is None else psi


def check_sketchable(program: Program) -> None:
    """Refuse operations without random features, naming all of them."""
    use_instead = "write method='jacobian', the projected derivatives of the module itself"
    problems = tuple(
        Problem(step.node.path, step.op.label(), reason, use_instead)
        for step in plan_of(program).steps
        if (reason := step.rule.without_random_features(step)) is not None
    )
    if problems:
        raise UnsupportedLayerError(problems)
