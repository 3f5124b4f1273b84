"""Pages in a browser: nothing overflows, figures have alt text, nothing is fetched from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ntkit_studies import find

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
PAGES = [*sorted(path.stem for path in (ROOT / "docs").glob("*.md")), "api", "gallery/index"]
BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
PROBE = (
    "<script>addEventListener('load', () => { const page = document.documentElement;"
    " document.body.dataset.overflow = page.scrollWidth - page.clientWidth; })</script></body>"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    experiment = find("ntk_convergence")
    assert experiment.main(["--quick", "--widths", "4", "8", "--draws", "2", "--output", str(path)]) == 0
    return path


def check(path: Path, width: int) -> None:
    text = path.read_text(encoding="utf-8")
    fetched = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(?:https?:)?//[^\"]*\"", text)
    fetched += re.findall(r"<link[^>]*rel=\"(?:stylesheet|preload|icon)\"[^>]*href=\"(?:https?:)?//[^\"]*\"", text)
    assert not fetched, "the page must load nothing from elsewhere"
    # Thumbnails stand beside their titles and are decoration, which an empty alt text says.
    images = [image for image in re.findall(r"<img\b[^>]*>", text) if "_thumb.png" not in image]
    assert all(re.search(r"\balt=\"[^\"]+\"", image) for image in images), "every figure needs alt text"
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    probe = path.with_name(f"{path.stem}.probe.html")
    probe.write_text(text.replace("</body>", PROBE), encoding="utf-8")
    try:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--hide-scrollbars",
        ]
        command = [
            BROWSER,
            *options,
            f"--window-size={width},900",
            "--virtual-time-budget=3000",
            "--dump-dom",
            probe.as_uri(),
        ]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        probe.unlink()
    overflow = re.search(r'data-overflow="(-?\d+)"', shown)
    assert overflow is not None, "the browser did not load the page"
    assert int(overflow[1]) <= 0, f"the page is {overflow[1]} pixels wider than the window"


@pytest.mark.parametrize("width", [1200, 500])
def test_report_of_an_experiment(report, width):
    check(report, width)


@pytest.mark.slow
def test_report_of_the_demo(tmp_path):
    assert find("digits").main(["--quick", "--output", str(tmp_path / "demo.html")]) == 0
    check(tmp_path / "demo.html", 1200)


@pytest.mark.skipif(not SITE.exists(), reason="the site is not built: make docs")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", [*PAGES, "play"])
def test_page_of_the_site(page, width):
    check(SITE / f"{page}.html", width)
