"""What is imported when: checked in processes of their own, by module and not by time."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATER = {
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.special",
    "sklearn",
    "pandas",
    "dask",
    "distributed",
    "zarr",
}
LATER |= {"matplotlib", "gpytorch", "rich", "typer", "pooch", "torch._dynamo", "sympy"}


def imported(code: str) -> set[str]:
    """Run code in a process of its own; give the modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_package_imports_nothing():
    assert not imported("import ntkit") & {"torch", "numpy", "ntkit._src", "ntkit.errors"}


KERNEL = """
import torch, ntkit
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
ntkit.{call}(net).ntk(torch.randn(3, 4))
"""


@pytest.mark.parametrize(
    "code", [KERNEL.format(call="infinite_width"), "import ntkit; ntkit.gram, ntkit.train, ntkit.adapt"]
)
def test_kernels_import_no_library_but_torch(code):
    found = imported(code)
    assert "ntkit._src.kernels" in found and not found & LATER


def test_the_error_of_unfitted_objects_is_made_when_it_is_used():
    code = """
import ntkit.errors, pickle, sys
assert "sklearn" not in sys.modules
from ntkit.errors import InputError, NotFittedError
import sklearn.exceptions
assert issubclass(NotFittedError, (InputError)) and issubclass(NotFittedError, sklearn.exceptions.NotFittedError)
assert NotFittedError is ntkit.errors.NotFittedError
assert type(pickle.loads(pickle.dumps(NotFittedError("text")))) is NotFittedError
"""
    assert "sklearn.exceptions" in imported(code)
