"""The site: ``make docs`` builds it into build/site, with warnings as errors and without a network."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

from ntkit._src.cli._play import page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

project = "ntkit"
author = "The ntkit authors"
release = metadata.version("ntkit")
extensions = [
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["results/**", "_ext/**", "_templates/**"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "ntkit"
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "footer_start": [],
    "footer_center": [],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "playground": []},
    "show_prev_next": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "playground": []}
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc shows what the docstrings say
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "plot_gallery": "True",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10,
    "abort_on_example_error": True,
    "capture_repr": (),  # what is printed, not what the last line returns
    "write_computation_times": False,
}


def setup(app: Sphinx) -> None:
    """Put the playground into the site: one file, the one that ``ntkit play`` opens."""

    def write_playground(app: Sphinx, failed: Exception | None) -> None:
        if failed is None and app.builder.format == "html":
            (Path(app.outdir) / "play.html").write_text(page(), encoding="utf-8")

    app.connect("build-finished", write_playground)
