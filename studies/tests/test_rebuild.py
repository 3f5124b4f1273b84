from __future__ import annotations

from pathlib import Path

import pytest

from ntkit.errors import InputError
from ntkit_studies import find, rebuild_reports

QUICK = ["--quick", "--widths", "4", "8", "--draws", "2"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name in ("a", "deeper/b"):
        assert find("ntk_convergence").main([*QUICK, "--output", str(tmp_path / name)]) == 0
    return tmp_path


def test_pages_come_again_with_an_index(results: Path):
    pages = {path: path.read_bytes() for path in results.rglob("report.html")}
    for path in pages:
        path.unlink()
    written = rebuild_reports(results)
    assert {path: path.read_bytes() for path in results.rglob("report.html")} == pages
    assert written[-1] == results / "index.html" and len(written) == 5
    text = written[-1].read_text(encoding="utf-8")
    assert 'href="a/report.html"' in text and 'href="deeper/b/report.html"' in text and "Theorem 3.1" in text


def test_folders_without_results(results: Path, tmp_path: Path):
    with pytest.raises(InputError, match="holds no results"):
        rebuild_reports(tmp_path / "nowhere")
    (results / "a" / "results.json").write_text("{}")
    with pytest.raises(InputError, match=r"must hold results.json and manifest.json"):
        rebuild_reports(results)
