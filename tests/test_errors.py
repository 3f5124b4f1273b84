"""The tree of exceptions: each is ntkit's and a built-in, and survives the way between processes."""

from __future__ import annotations

import builtins
import pickle

import pytest

from ntkit import errors
from ntkit.errors import NtkitError, NtkitWarning, Problem, UnsupportedLayerError

CLASSES = [getattr(errors, name) for name in errors.__all__]
EXCEPTIONS = [c for c in CLASSES if issubclass(c, Exception) and not issubclass(c, Warning) and c is not NtkitError]


@pytest.mark.parametrize("error", EXCEPTIONS)
def test_each_is_one_of_ours_and_a_builtin(error: type[Exception]) -> None:
    assert issubclass(error, NtkitError)
    own = [
        c
        for c in error.__mro__
        if getattr(builtins, c.__name__, None) is c and c not in (Exception, BaseException, object)
    ]
    assert own, "a caller who does not know ntkit catches a built-in"
    assert error.__doc__


@pytest.mark.parametrize("warning", [c for c in CLASSES if issubclass(c, Warning)])
def test_warnings(warning: type[Warning]) -> None:
    assert issubclass(warning, NtkitWarning) and issubclass(warning, UserWarning)


def test_every_problem_of_a_module_is_listed() -> None:
    problems = (Problem("a.0", "Dropout", "it draws.", "nothing"), Problem("b", "softmax", "no form.", "erf"))
    one, two = UnsupportedLayerError(problems[:1]), UnsupportedLayerError(problems)
    assert str(one).startswith("1 place has no closed-form")
    assert str(two).startswith("2 places have no closed-form")
    assert "a.0: Dropout: it draws.\n    instead: nothing" in str(two) and "b: softmax" in str(two)
    again = pickle.loads(pickle.dumps(two))
    assert again.problems == problems and str(again) == str(two)
