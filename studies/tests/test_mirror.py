"""Every file of the studies has the test file of the same name, as the library's have; see ``tests/test_mirror.py``."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest
from tests.test_mirror import lone_files

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src" / "ntkit_studies"

TOGETHER = {
    "[mr]*_by_size.py": "test_by_size.py",
    "_completion_methods.py": "test_matrix_completion.py",
    "_digits_*.py": "test_digits.py",
    "_ratings.py": "test_matrix_completion.py",
    "_search_space.py": "test_architecture_search.py",
    "feature_learning/*.py": "feature_learning/test_experiments.py",
    "_seeded.py": "methods/test_module_state.py",
    "methods/_classes.py": "methods/test_error_barrier.py",
    "methods/federated/*.py": "methods/federated/test_federated_ntk.py",
    "methods/inpainting/*.py": "methods/inpainting/test_inpainting.py",
    "tasks/*.py": "tasks/test_tasks.py",
    "skeleton/_threads.py": "skeleton/test_command_line.py",
}


def test_each_file_has_its_tests() -> None:
    lone = lone_files(SOURCES, TESTS)
    untested = [name for name in lone if not any(fnmatch(name, pattern) for pattern in TOGETHER)]
    assert not untested, f"write studies/tests/test_NAME.py for {untested}"


@pytest.mark.parametrize("pattern", TOGETHER)
def test_the_list_is_no_longer_than_needed(pattern: str) -> None:
    assert (TESTS / TOGETHER[pattern]).exists()
    assert any(fnmatch(name, pattern) for name in lone_files(SOURCES, TESTS))
