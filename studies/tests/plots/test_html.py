from __future__ import annotations

import subprocess
import sys

import pytest

from ntkit.plots import new_figure
from ntkit_studies.plots import Picture, Section, Table, html_report


def test_report_escapes_all_text_and_embeds_figures():
    evil = '<script>"&'
    figure = new_figure()
    figure.subplots()
    section = Section(evil, [evil, Table([evil], [[evil]], evil), Picture(figure, evil, evil)])
    page = html_report(evil, evil, [section])
    assert "<script" not in page
    assert page.count("&lt;script&gt;&quot;&amp;") == 10
    assert page.count("data:image/png;base64,") == 1


@pytest.mark.slow
def test_importing_and_drawing_leaves_pyplot_alone():
    code = (
        "import sys, ntkit.plots as q, ntkit_studies.plots as p; assert 'matplotlib' not in sys.modules; "
        "p.Picture(q.new_figure(), '', '').html(); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
