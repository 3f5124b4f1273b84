"""The mutants that are drawn: one token each, in code that runs."""

import ast
import importlib.util
import io
import sys
import tokenize
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "tools" / "mutants" / "sites.py"


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutant_sites", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutant_sites"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module.mutants
    del sys.modules["mutant_sites"]


SOURCE = '''"""Text with 1 + 2."""
from __future__ import annotations
LIMIT: int | None = 3

class Thing:
    """More text, 4 < 5."""
    def method(self, x1: float | None = 0.5, *rest, flag=True) -> int | None:
        for n in rest:  # a comment: 1 - 1
            if not n or (x1 is None and n not in rest):
                continue
            x1 += n ** 2 % 7
        return max(-x1, f"{1 + 1}" != "é", x1.min())

    def outer(self):
        def inner(y):
            return (y
                    // 2)
        return inner
'''
EXPECTED = [
    ("3 -> 4", ""), ("0.5 -> 1.0", ""), ("True -> False", ""),
    ("not -> nothing", "Thing.method"), ("or -> and", "Thing.method"), ("x1 -> x2", "Thing.method"),
    ("is -> is not", "Thing.method"), ("and -> or", "Thing.method"),
    ("not -> nothing", "Thing.method"), ("continue -> break", "Thing.method"),
    ("+= -> -=", "Thing.method"), ("** -> *", "Thing.method"), ("2 -> 3", "Thing.method"), ("% -> *", "Thing.method"),
    ("7 -> 8", "Thing.method"), ("max -> min", "Thing.method"), ("- -> nothing", "Thing.method"), ("x1 -> x2", "Thing.method"),
    ("!= -> ==", "Thing.method"), ("x1 -> x2", "Thing.method"), ("min -> max", "Thing.method"),
    ("// -> *", "Thing.outer.<locals>.inner"), ("2 -> 3", "Thing.outer.<locals>.inner"),
]  # fmt: skip


def test_every_place_once_and_nothing_else(mutants):
    found = mutants("a.py", SOURCE)
    assert [(m.change, m.function) for m in found] == EXPECTED
    assert (
        found[0].line == 3 and found[0].before == "LIMIT: int | None = 3" and found[0].after == "LIMIT: int | None = 4"
    )


def _tokens(source):
    return [t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.string.strip()]


def test_each_differs_by_one_token(mutants):
    root = PATH.parents[2] / "src" / "ntkit" / "_src"
    files = [root / "rules" / "_combine.py", root / "kernels" / "_kernel.py"]
    sources = [file.read_text() for file in files if file.exists()] or [
        SOURCE
    ]  # installed from a wheel there is no src/
    for source in sources:
        original = _tokens(source)
        found = mutants("a.py", source)
        assert len({m.source for m in found}) == len(found) > 10
        for m in found:
            ast.parse(m.source)
            changed = _tokens(m.source)
            assert abs(len(changed) - len(original)) <= 1
            start = next(i for i, pair in enumerate(zip(original, changed, strict=False)) if pair[0] != pair[1])
            rest = len(original) - start - 1
            assert changed[len(changed) - rest :] == original[len(original) - rest :]
