"""The site: ``make docs`` builds it into build/site, with warnings as errors and without a network."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

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
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["results/**", "_ext/**", "_templates/**"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
html_theme = "alabaster"
html_theme_options = {
    "page_width": "1080px",
    "sidebar_width": "220px",
    "description": "Neural tangent kernels of PyTorch modules",
}
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
myst_enable_extensions = ["dollarmath"]
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
