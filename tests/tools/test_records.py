"""Figures on the pages come from stored records, and the check notices those that do not."""

from __future__ import annotations

import importlib.util
import json
import sys
from datetime import datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tools" / "records.py"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="tools belong to the repository, not to the wheel")
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
RESULTS = ROOT / "docs" / "results"


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
def test_every_figure_of_a_page_comes_from_a_record(page, tool):
    left = tool.unrecorded((ROOT / page).read_text(encoding="utf-8"), tables=Path(page).stem in tool.MEASURED)
    assert not left, "store the run and let tools/pages.py show it, or leave the figure out"


def test_every_stored_result_has_its_manifest():
    """A folder has a manifest next to its results; a record of a benchmark has one in itself."""
    for results in RESULTS.rglob("results.*"):
        assert (results.parent / "manifest.json").exists(), results
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS / "benchmarks").glob("*.json")]
    records += [json.loads(line) for line in (RESULTS / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines()]
    for record in records:
        assert record["commit"] and record["machine"] and datetime.fromisoformat(record["date"])
    known = {"manifest.json", "results.json", "results.csv", "benchmarks.jsonl"}
    rebuilt = {"cells.jsonl", "report.html", "index.html"}  # by a run that goes on, or by ``ntkit report``
    others = [path for path in RESULTS.rglob("*") if path.is_file() and path.name not in known | rebuilt]
    assert {path.parent.name for path in others} <= {"benchmarks"}


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
An error of 1.5e-6 has no unit, nor has 0.25; `0.125` is code, [page](0.03.md) a link, section 0.5 a place, 1.2.3 a version.

```python
print("4 times")
```
"""


def test_what_counts_as_a_figure(tool):
    (found,) = tool.unrecorded(PAGE)
    assert found.rows == (("5", "0.25"),)
    assert found.words == ("3.5 times", "2 to 3 seconds", "9.05 seconds", "9.04 to 9.06 seconds", "1.5e-6", "0.25")
    (without,) = tool.unrecorded(PAGE, tables=False)
    assert without.rows == () and without.words == found.words


def test_a_page_whose_figures_are_generated_has_nothing_left(tool):
    text = PAGE[PAGE.index("<!--") : PAGE.index(", but neither")]
    assert tool.unrecorded(f"# Speed\n\n{text}") == []
    changed = text.replace("have 9.04 and", "have 9.02 and")
    (found,) = tool.unrecorded(f"# Speed\n\n{changed}")
    assert found.words == ("9.02 and 9.041 seconds",)
