"""The studies use the public names of ntkit; what they still take from its private modules is listed here, and no more."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "ntkit_studies"

# A line may be taken off this list, never added to it: make the name public in ntkit, or do without it.
ALLOWED = {
    ("_completion_methods.py", "ntkit._src.applications.completion.fit_offsets"),
    ("_completion_methods.py", "ntkit._src.applications.completion.read_entries"),
    ("_digits_methods.py", "ntkit._src.kernels.InfiniteWidthKernel"),
    ("_flow_costs.py", "ntkit._src.native.rectified_operations"),
    ("_flow_costs.py", "ntkit._src.native.single_precision"),
    ("_flow_costs.py", "ntkit._src.native.tape_of"),
    ("_stored_gram.py", "ntkit._src.gram.fingerprint"),
    ("_stored_gram.py", "ntkit._src.gram.kernel_fingerprint"),
    ("_uci_methods.py", "ntkit._src.common.restored_generator"),
    ("digits.py", "ntkit._src.common.Progress"),
    ("digits.py", "ntkit._src.kernels.InfiniteWidthKernel"),
    ("feature_learning/_networks.py", "ntkit._src.common.restored_generator"),
    ("feature_learning/rfm_tasks.py", "ntkit._src.features.rfm.DifferentiableKernel"),
    ("feature_learning/rfm_tasks.py", "ntkit._src.features.rfm.DistanceKernel"),
    ("feature_learning/rfm_tasks.py", "ntkit._src.features.rfm.MetricKernel"),
    ("feature_learning/rfm_tasks.py", "ntkit._src.features.rfm.RFMSettings"),
    ("feature_learning/rfm_tasks.py", "ntkit._src.features.rfm.recursion"),
    ("federated_images.py", "ntkit._src.common.restored_generator"),
    ("skeleton/_command_line.py", "ntkit._src.cli._terminal.one_line"),
    ("skeleton/_command_line.py", "ntkit._src.cli._terminal.progress_bars"),
    ("skeleton/_estimate.py", "ntkit._src.common.bytes_text"),
    ("skeleton/_estimate.py", "ntkit._src.common.seconds_text"),
    ("skeleton/_experiment.py", "ntkit._src.gram.locked"),
}  # fmt: skip


def private_imports() -> set[tuple[str, str]]:
    """Give each name from a private module, with the file that imports it."""
    found = set()
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ntkit."):
                names = [f"{node.module}.{one.name}" for one in node.names]
            elif isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            found |= {
                (path.relative_to(SOURCES).as_posix(), name)
                for name in names
                if name.startswith("ntkit.") and "._" in name
            }
    return found


def test_no_private_name_is_imported_but_those_listed():
    assert private_imports() == ALLOWED
