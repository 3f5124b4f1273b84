"""Figures on the pages are in stored records, and the check notices those that are not."""

from __future__ import annotations

import importlib.util
import sys
from datetime import datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tools" / "records.py"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="tools belong to the repository, not to the wheel")
PAGES = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("records", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setitem(sys.modules, "records", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    monkeypatch.undo()


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_of_a_page_is_in_a_record(page, tool):
    left = tool.unrecorded(page, (ROOT / page).read_text(encoding="utf-8"), tool.stored())
    assert not left, "python tools/records.py PAGE --section HEADING --command COMMAND enters it, or let a run write it"


def test_records_say_where_they_come_from(tool):
    for record in tool.stored():
        assert record["page"] in PAGES and record["command"] and record["machine"] and record["note"] == tool.NOTE
        assert len(record["commit"]) >= 39 and datetime.fromisoformat(record["date"])
        assert record["tables"] or record["figures"]


def test_what_is_entered_is_still_on_its_page(tool):
    """A record of what no page shows any more would hide that the figure has gone, or has changed."""
    for record in tool.stored():
        shown = tool.figures_of((ROOT / record["page"]).read_text(encoding="utf-8"), tables=True)
        rows = {row for one in shown for row in one.rows}
        assert {(tuple(one["header"]), tuple(row)) for one in record["tables"] for row in one["rows"]} <= rows
        assert set(record["figures"]) <= {word for one in shown for word in one.words}


PAGE = """# Speed

It is 3.5 times as fast and takes 2 to 3 seconds, in a 95 % interval; `--steps 5 s` is code, CIFAR-10 a name.

| n | seconds |
|---|---|
| 5 | 0.25 |
| `a1` | - |

<!-- speed: begin -->
| n | seconds |
|---|---|
| 7 | 9.0412 |
<!-- speed: end -->

Generated tables have 9.04 and 9.041 seconds too, 7 times, but neither 9.05 seconds nor 9.04 to 9.06 seconds.

```python
print("4 times")
```
"""


def test_what_counts_as_a_figure(tool):
    (found,) = tool.figures_of(PAGE)
    assert found.rows == ((("n", "seconds"), ("5", "0.25")),)
    assert found.words == ("3.5 times", "2 to 3 seconds", "9.05 seconds", "9.04 to 9.06 seconds")


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ("3.5 times", "3.6 times", "3.6 times"),
        ("0.25", "0.26", ("5", "0.26")),
        ("| n |", "| rows |", ("5", "0.25")),
        ("", "", None),
    ],
)
def test_a_changed_figure_is_noticed(before, after, left, tool):
    page = "docs/scale.md"
    (figures,) = tool.figures_of(PAGE)
    record = tool.record_of(page, figures, "make bench", "0" * 40, "2026-01-01", "a machine")
    changed = PAGE.replace(before, after, 1) if before else PAGE
    found = tool.unrecorded(page, changed, [record])
    if left is None:
        assert not found
        return
    (one,) = found
    assert left in (*one.words, *(row for _, row in one.rows))
    assert tool.unrecorded("docs/guide.md", PAGE, [record])[0].rows == ()  # a page without tables of measurements
