"""What the tests of rules share: inputs of each kind, and a function as a layer."""

import torch
from tests.cases import normal

from ntkit._src.program import Node, Op
from ntkit._src.rules._rule import RULES, Step
from ntkit.results import MonteCarlo
from ntkit.testing import RuleConformance


def step_of(op: Op, inputs: int, positions: tuple[int, ...] = ()) -> Step:
    """Return a step that reads nodes 0, 1, ..., for tests of a rule by itself."""
    return Step(inputs, Node(op, tuple(range(inputs)), positions, "", False, False), op, RULES[type(op)])


def estimates(mc: MonteCarlo, x: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Means and standard errors of the NNGP and the NTK of random networks, which are drawn once for both."""
    values = torch.stack([torch.stack([emp.nngp(x), emp.ntk(x)]) for emp in mc.networks(x)])
    return list(zip(values.mean(0), values.std(0) / len(values) ** 0.5, strict=True))


class Vectors(RuleConformance):
    def inputs(self):
        return normal(5, 4)


class Signals(RuleConformance):
    width, n_samples = 32, 200

    def inputs(self):
        return normal(4, 2, 6)


class Images(RuleConformance):
    width, n_samples = 24, 200

    def inputs(self):
        return normal(4, 2, 4, 4)
