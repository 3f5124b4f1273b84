"""The stub of the compiled module is generated from it, never written by hand."""

import ast
from pathlib import Path

import pytest

import ntkit._src.native
from ntkit._src.native import _core

STUB = Path(ntkit._src.native.__file__).with_name("_core.pyi")


def names(tree):
    """Every class and function with its arguments and types, without docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            node.body = [line for line in node.body if not isinstance(line, ast.Expr)] or [ast.Pass()]
    tree.body = [line for line in tree.body if not isinstance(line, (ast.Expr, ast.Import, ast.ImportFrom))]
    return ast.dump(tree)


@pytest.mark.skipif(not STUB.exists(), reason="stubs are not installed")
def test_the_stub_is_current():
    stubgen = pytest.importorskip("nanobind.stubgen")
    generator = stubgen.StubGen(_core, include_docstrings=False, quiet=True)
    generator.put(_core)
    command = (
        "python -m nanobind.stubgen -D -m ntkit._src.native._core -o src/ntkit/_src/native/_core.pyi; ruff format it"
    )
    assert names(ast.parse(generator.get())) == names(ast.parse(STUB.read_text())), f"Write: {command}"
