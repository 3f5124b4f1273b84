"""What the examples in docstrings share with the tests.

``NTKIT_TEST_THREADS`` says how many threads a test may take, ``NTKIT_TEST_ORDER`` is the seed of another order of the tests;
``make test-machines`` sets them.
"""

import os
import random

# Tests run in several processes, and start programs; threads of their own, or that spin while they wait, would only take the
# processors from each other. Libraries read these variables when they are loaded.
os.environ.setdefault("NTKIT_TEST_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", os.environ["NTKIT_TEST_THREADS"])  # torch
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ["NTKIT_TEST_THREADS"])  # numpy and scipy: of one, none spins

import hypothesis
import pytest
import torch

# The same examples in every run, but for runs in another order; and no folder of past ones in a tree that may be read-only.
hypothesis.settings.register_profile(
    "ntkit", database=None, deadline=None, derandomize="NTKIT_TEST_ORDER" not in os.environ
)
hypothesis.settings.load_profile("ntkit")


@pytest.fixture(autouse=True)
def _threads() -> None:
    """Whatever earlier tests have set, a test begins with the same number of threads."""
    torch.set_num_threads(int(os.environ["NTKIT_TEST_THREADS"]))


@pytest.fixture(autouse=True)
def _seeded_examples(request: pytest.FixtureRequest) -> None:
    """Examples draw without a seed, as users do; here they see the same draws in every run."""
    if isinstance(request.node, pytest.DoctestItem):
        torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files, and the tests of each file, into the order of a seed; every process makes the same one."""
    seed = os.environ.get("NTKIT_TEST_ORDER")
    if seed is not None:
        order = random.Random(seed)
        files = sorted({item.path for item in items})
        order.shuffle(files)
        place = {path: number for number, path in enumerate(files)}
        order.shuffle(items)
        items.sort(key=lambda item: place[item.path])
