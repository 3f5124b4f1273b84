"""Every case of the conformance suite among the tests of the rules, for tests that go through all families."""

import inspect

from tests.rules import (
    test_activation_rules,
    test_affine,
    test_combine,
    test_input,
    test_maps,
    test_normalize,
    test_positions,
)

from ntkit.testing import RuleConformance


def _cases(*modules):
    return {
        name: case
        for module in modules
        for name, case in inspect.getmembers(module, inspect.isclass)
        if issubclass(case, RuleConformance) and name.startswith("Test")
    }


LAYERS = _cases(test_affine, test_combine, test_input, test_maps, test_normalize, test_positions)
ACTIVATIONS = _cases(test_activation_rules)
