"""The places in a source file where changing one token yields another valid program."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass

__all__ = ["Mutant", "mutants"]

_BINARY = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*", "@": "*", "&": "|", "|": "&"}
_COMPARISON = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "in": "not in"}
_AUGMENTED = {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
_NAMES = {
    "min": "max",
    "max": "min",
    "amin": "amax",
    "amax": "amin",
    "any": "all",
    "all": "any",
    "x1": "x2",
    "x2": "x1",
}


@dataclass(frozen=True)
class Mutant:
    """One changed token of one file.

    Attributes
    ----------
    file
        Path from the root of the package, e.g. ``rules/_combine.py``.
    line
        Line of the token, from 1.
    function
        Qualified name of the function that the token is part of; empty for code that runs at import.
    before, after
        The whole line, stripped, before and after the change: with ``file``, the name of the mutant when lines move.
    change
        The token and what replaces it.
    source
        The changed file.
    """

    file: str
    line: int
    function: str
    before: str
    after: str
    change: str
    source: str


def mutants(file: str, source: str) -> list[Mutant]:
    """Return every mutant of a file, in the order of their places."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    lines = source.splitlines(keepends=True)
    found = []
    for (row, column), (old, new, function) in sorted(finder.changes.items()):
        changed = lines[row - 1][:column] + new + lines[row - 1][column + len(old) :]
        whole = "".join([*lines[: row - 1], changed, *lines[row:]])
        try:
            ast.parse(whole)
        except SyntaxError:
            continue
        found.append(
            Mutant(file, row, function, lines[row - 1].strip(), changed.strip(), f"{old} -> {new or 'nothing'}", whole)
        )
    return found


class _Finder(ast.NodeVisitor):
    """Collect ``{(row, column): (token, replacement, function)}``; columns count characters."""

    def __init__(self, source: str) -> None:
        self.changes: dict[tuple[int, int], tuple[str, str, str]] = {}
        self._lines = source.splitlines()
        self._tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        self._scope: list[str] = []
        self._functions: list[str] = []

    def _place(self, row: int, byte_column: int) -> tuple[int, int]:
        return row, len(self._lines[row - 1].encode()[:byte_column].decode())

    def _change(self, place: tuple[int, int], old: str, new: str) -> None:
        self.changes[place] = (old, new, self._functions[-1] if self._functions else "")

    def _between(self, left: ast.expr, right: ast.expr, table: dict[str, str]) -> None:
        """Change the operator between two operands."""
        start = self._place(left.end_lineno or left.lineno, left.end_col_offset or 0)
        end = self._place(right.lineno, right.col_offset)
        words = [
            t for t in self._tokens if start <= t.start < end and t.string not in "()" and t.type != tokenize.COMMENT
        ]
        words = [t for t in words if t.string.strip()]
        if len(words) == 1 and words[0].string in table:
            self._change(words[0].start, words[0].string, table[words[0].string])
        elif [t.string for t in words] in (["is", "not"], ["not", "in"]):
            word = words[0] if words[0].string == "not" else words[1]
            self._change(word.start, "not", "")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._between(node.left, node.right, _BINARY)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, {"and": "or", "or": "and"})
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            self._between(left, right, _COMPARISON)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._between(node.target, node.value, _AUGMENTED)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        token = {ast.Not: "not", ast.USub: "-", ast.Invert: "~"}.get(type(node.op))
        if token is not None:
            self._change(self._place(node.lineno, node.col_offset), token, "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value, place = node.value, self._place(node.lineno, node.col_offset)
        if isinstance(value, bool):
            self._change(place, str(value), str(not value))
        elif isinstance(value, int | float):
            written = self._lines[place[0] - 1].encode()[node.col_offset : node.end_col_offset].decode()
            self._change(place, written, str(value + 1) if isinstance(value, int) else repr(2 * value + (value == 0)))

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _NAMES and isinstance(node.ctx, ast.Load):
            self._change(self._place(node.lineno, node.col_offset), node.id, _NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _NAMES:
            row, column = self._place(node.end_lineno or node.lineno, node.end_col_offset or 0)
            self._change((row, column - len(node.attr)), node.attr, _NAMES[node.attr])
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._change(self._place(node.lineno, node.col_offset), "break", "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._change(self._place(node.lineno, node.col_offset), "continue", "break")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave f-strings alone: Python 3.11 does not know the positions inside them."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # the annotation is not executed
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(part)
        self._functions.append(".".join([*self._scope, node.name]))
        self._scope += [node.name, "<locals>"]
        for statement in node.body:
            self.visit(statement)
        del self._scope[-2:]
        self._functions.pop()
