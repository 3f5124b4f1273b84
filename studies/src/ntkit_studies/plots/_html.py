"""A report in one self-contained HTML file: text, tables, and figures as embedded PNG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Link", "Picture", "Section", "Table", "html_report"]

# Figures have their own white background, so that their colours work on a dark page too.
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --ground: #ffffff; --line: #d1d9e0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa4ae; --ground: #15181c; --line: #3a424b; } }
body { margin: 2.5rem auto; max-width: 60rem; padding: 0 1.25rem; color: var(--ink); background: var(--ground);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin-top: 2.5rem; }
p { max-width: 46rem; }
figure { margin: 1.25rem 0; }
img { display: block; max-width: 100%; height: auto; background: #ffffff; border-radius: 6px; }
figcaption { max-width: 46rem; color: var(--soft); font-size: 0.9rem; text-align: left; padding: 0.5rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: 34rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 1rem 0.35rem 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
"""


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes
    ----------
    header
        The names of the columns.
    rows
        One text per column; the first column names the row.
    caption
        Written above.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def html(self) -> str:
        """Return the table as HTML."""
        head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in self.header)
        body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
        return f'<figure>{caption}\n<div class="scroll">{table}</div></figure>'


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure.

    Attributes
    ----------
    figure
        The figure, drawn.
    caption
        Written below.
    alt
        What the figure shows, for readers who cannot see it.
    """

    figure: Figure
    caption: str
    alt: str

    def html(self) -> str:
        """Return the figure as HTML, its PNG embedded."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=160)
        data = base64.b64encode(buffer.getvalue()).decode("ascii")
        image = f'<img alt="{escape(self.alt)}" src="data:image/png;base64,{data}">'
        return f"<figure>{image}\n<figcaption>{escape(self.caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Link:
    """A link to another page.

    Attributes
    ----------
    text
        What is shown.
    target
        The address, relative to the page.
    """

    text: str
    target: str

    def html(self) -> str:
        """Return the link as a paragraph of HTML."""
        return f'<p><a href="{escape(self.target)}">{escape(self.text)}</a></p>'


@dataclass(frozen=True)
class Section:
    """A part of a report under its own title.

    Attributes
    ----------
    title
        The heading.
    parts
        In the order of reading; a string is a paragraph.
    """

    title: str
    parts: Sequence[str | Table | Picture | Link]

    def html(self) -> str:
        """Return the section as HTML."""
        parts = (f"<p>{escape(part)}</p>" if isinstance(part, str) else part.html() for part in self.parts)
        return "\n".join([f"<section><h2>{escape(self.title)}</h2>", *parts, "</section>"])


def html_report(title: str, introduction: str, sections: Sequence[Section]) -> str:
    """Assemble a report: one HTML text with everything in it, so that it can be opened, mailed and kept as one file.

    Parameters
    ----------
    title, introduction
        Plain text. All text of a report is escaped; none of it is read as HTML.
    sections
        In the order of reading.

    Examples
    --------
    >>> table = Table(["kernel", "accuracy"], [["NTK", "0.9"]])
    >>> page = html_report("A < B", "Two kernels.", [Section("Result", ["In short:", table])])
    >>> "<h1>A &lt; B</h1>" in page, "<td>0.9</td>" in page
    (True, True)
    """
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>\n<p>{escape(introduction)}</p>",
            *(section.html() for section in sections),
            "</main></body></html>\n",
        ]
    )
