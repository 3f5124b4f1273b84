from __future__ import annotations

import sys
import types
from functools import partial

import pytest

from ntkit_studies.skeleton._code_fingerprint import code_fingerprint

SOURCE = '''
import math
from dataclasses import dataclass
LAYERS = (1, 2)

@dataclass(frozen=True)
class Net:
    width: int
    def size(self):
        return self.width * 2

def helper(x, rate=0.1):
    return [rate * layer for layer in LAYERS] + [x]

TABLE = {"a": helper}

def unused():
    return 5

def compute(x):
    """Do it."""
    def inner(y):
        return y + 1
    return inner(math.sin(x)) + TABLE["a"](x)[0] + Net(3).size()
'''


def fingerprint(source=SOURCE, name="ntkit_studies.example"):
    module = types.ModuleType(name)
    sys.modules[name] = module  # where dataclasses look for it
    exec(compile(source, "example", "exec"), module.__dict__)
    del sys.modules[name]
    return code_fingerprint(module.compute)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return y + 1", "return y + 2"),
        ("math.sin", "math.cos"),
        ("LAYERS = (1, 2)", "LAYERS = (1, 3)"),
        ("rate=0.1", "rate=0.2"),
        ("self.width * 2", "self.width * 3"),
        ("[rate * layer", "[rate + layer"),
    ],
)
def test_what_computes_counts(old, new):
    assert old in SOURCE and fingerprint() == fingerprint() != fingerprint(SOURCE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [("return 5", "return 6"), ("return y + 1", "return y  +  1  # next"), ("\ndef unused", "\n\n\ndef unused")],
)
def test_what_does_not_compute_does_not_count(old, new):
    assert old in SOURCE and fingerprint() == fingerprint(SOURCE.replace(old, new))


def test_arguments_of_partial_functions_count():
    assert code_fingerprint(partial(print, 1)) != code_fingerprint(partial(print, 2))


def test_experiments_outside_the_package_count_too():
    edited = SOURCE.replace("[rate * layer", "[rate + layer")
    assert fingerprint(name="mine") == fingerprint(name="mine") != fingerprint(edited, name="mine")
