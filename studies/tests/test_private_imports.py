"""The studies use the public names of ntkit alone."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "ntkit_studies"


def private_imports() -> set[tuple[str, str]]:
    """Give each name from a private module, with the file that imports it."""
    found = set()
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ntkit."):
                names = [f"{node.module}.{one.name}" for one in node.names]
            elif isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            found |= {
                (path.relative_to(SOURCES).as_posix(), name)
                for name in names
                if name.startswith("ntkit.") and "._" in name
            }
    return found


def test_no_private_name_is_imported():
    assert private_imports() == set(), "make the name public in ntkit, or do without it"
