"""The README's examples run, and its table is the registry's."""

import re
from pathlib import Path

import pytest

import ntkit

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs(example, capsys):
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    if "accuracy" in names:
        assert names["accuracy"] > 0.8
        assert names["K"].shape == (50, 50)


def test_there_are_examples():
    assert len(EXAMPLES) >= 2


def test_table_of_supported_layers_is_current():
    table = re.search(
        r"<!-- supported layers: begin -->\n(.*)\n<!-- supported layers: end -->", README, flags=re.DOTALL
    )
    assert table is not None
    assert table[1] == ntkit.supported_layers(), "paste the output of ntkit.supported_layers() into the README"
