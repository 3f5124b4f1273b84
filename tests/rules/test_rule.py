"""Every operation has a rule, which answers for its random features, and a program is planned once."""

import gc
import inspect
import weakref

import pytest
import torch
from tests.cases import NETWORKS, normal

import ntkit
from ntkit._src import program as operations
from ntkit._src.program import Attention, Op
from ntkit._src.rules import _plan, gram
from ntkit._src.rules._plan import FAMILIES, plan_of
from ntkit._src.rules._rule import RULES, Rule


def _leaves(op: type[Op]) -> set[type[Op]]:
    """Return the operations of programs that have no subclasses; the native engine adds one of its own."""
    below = {leaf for child in op.__subclasses__() for leaf in _leaves(child)}
    return below or ({op} if op.__module__.startswith(operations.__name__) else set())


def test_each_operation_has_one_rule():
    assert set(RULES) == _leaves(Op) | {Attention}  # of which that with masks is a kind
    rules = {
        rule
        for family in FAMILIES
        for _, rule in inspect.getmembers(family, inspect.isclass)
        if issubclass(rule, Rule) and rule.__module__ == family.__name__ and not rule.__name__.startswith("_")
    }
    assert {type(rule) for rule in RULES.values()} == rules


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.__name__)
def test_each_rule_answers(op):
    """A rule has a covariance, and random features or the reason why there are none."""
    rule = RULES[op]
    assert type(rule).covariance is not Rule.covariance
    has_features = type(rule).random_features is not Rule.random_features
    refuses = type(rule).without_random_features is not Rule.without_random_features
    assert has_features or not refuses
    if not has_features:
        assert rule.without_random_features(None) == "it has no random features"


def test_an_operation_has_no_second_rule():
    with pytest.raises(AssertionError, match="Dense has a rule already"):
        type("Second", (Rule,), {}, ops=(operations.Dense,))


def test_a_program_is_planned_once(monkeypatch):
    """Neither calls nor tiles plan again, and a plan does not keep its program alive."""
    net = NETWORKS["layer norm, affine"].build()
    program = ntkit.infinite_width(net).program((3,))
    plan = plan_of(program)
    monkeypatch.setattr(_plan, "_plan", None)
    gram(program, normal(5, 3), None, ntk=True, nngp=True, byte_budget=1)
    schedules = len(plan._schedules)
    gram(program, normal(5, 3), None, ntk=True, nngp=True)
    assert plan_of(program) is plan and len(plan._schedules) == schedules
    assert [step.carries_h for step in plan.steps] == [True, True, True, False, False]
    assert not any(step.scales for step in plan.steps[2:])
    gone, program = weakref.ref(program), None
    gc.collect()
    assert gone() is None
    assert torch.is_tensor(ntkit.infinite_width(net).ntk(normal(2, 3)))
