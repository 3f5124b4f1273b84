"""Formulas as MathML, which browsers draw themselves: no script, no font and no request to another server."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx


def _mathml(text: str, block: bool) -> str:
    # docutils knows aligned formulas by their line breaks.
    source = text.replace(r"\begin{split}", "").replace(r"\end{split}", "").strip()
    try:
        return str(latex2mathml.tex2mathml(source, as_block=block))
    except (MathError, SyntaxError, AttributeError, IndexError):
        return f"<code>{nodes.unescape(text)}</code>" if not block else f"<pre>{nodes.unescape(text)}</pre>"


def _inline(writer: Any, node: Any) -> None:
    writer.body.append(_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="math">{_mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}
