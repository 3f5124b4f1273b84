"""Links between the project's pages lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    missing = [
        link
        for link in links
        if "://" not in link and not link.startswith("mailto:") and not (page.parent / link).exists()
    ]
    assert not missing


def test_there_are_pages_with_links():
    assert any("](" in page.read_text(encoding="utf-8") for page in PAGES)
