"""``ntkit play``: a page on which infinitely wide networks learn points that a visitor drags."""

from __future__ import annotations

import re
import tempfile
import webbrowser
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from ._console import check_out, command, note


@command("ntkit play --out playground.html")
def play(
    out: Annotated[Path | None, typer.Option(help="Write the page to this file instead of opening it.")] = None,
) -> None:
    """Open a page where infinitely wide networks learn points.

    The page is one file, which needs neither a server nor a network.
    """
    if out is not None:
        check_out(out)
        out.write_text(page(), encoding="utf-8")
        print(out)
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".html", delete=False) as file:
        file.write(page())
    if not webbrowser.open(Path(file.name).as_uri()):
        note(f"no browser was found: open {file.name} yourself")


def page() -> str:
    """Return the page with its style and scripts inside."""
    text = _read("index.html")
    text = re.sub(r'<link rel="stylesheet" href="(\S+)">', lambda found: f"<style>\n{_read(found[1])}</style>", text)
    return re.sub(r'<script src="(\S+)"></script>', lambda found: f"<script>\n{_read(found[1])}</script>", text)


def _read(name: str) -> str:
    return (files(__package__) / "playground" / name).read_text("utf-8")
