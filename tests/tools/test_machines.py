"""Every machine of ``tools/machines.py`` is run by continuous integration, or by ``make test-machines``."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"
pytestmark = pytest.mark.skipif(not WORKFLOW.exists(), reason="workflows belong to the repository, not to the wheel")


def tool():
    spec = importlib.util.spec_from_file_location("machines", ROOT / "tools" / "machines.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_machine_is_run_somewhere():
    machines = tool()
    (listed,) = re.findall(r"        machine:\n((?:          - \S+\n)+)", WORKFLOW.read_text(encoding="utf-8"))
    assert {*listed.split(), *machines.CHEAP} - {"-"} == set(machines.MACHINES)


def test_folders_of_numbers_exist():
    assert all((ROOT / path).exists() for path in tool().NUMBERS)
