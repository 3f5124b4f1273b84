"""Every source file has the test file of the same name in the same folder, or stands in the short list below."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src" / "ntkit" / "_src"

# Files that are parts of one thing and are tested through it: where their tests are. A new file needs one of its own.
TOGETHER = {
    "applications/completion/*.py": "applications/completion/test_imputer.py",
    "applications/search/*.py": "applications/search/test_search.py",
    "cli/_console.py": "cli/test_kernels.py",
    "cli/_data.py": "cli/test_kernels.py",
    "cli/_modules.py": "cli/test_kernels.py",
    "cli/_networks.py": "cli/test_kernels.py",
    "cli/_tables.py": "cli/test_fit.py",
    "cli/_terminal.py": "cli/test_command.py",
    "diagnostics/_influence.py": "diagnostics/test_attribution.py",
    "diagnostics/_sketch.py": "diagnostics/test_attribution.py",
    "estimators/_ntk_estimators.py": "estimators/test_classifier.py",
    "features/_layers.py": "features/test_matrices.py",
    "features/_passes.py": "features/test_matrices.py",
    "finite/_initialize.py": "finite/test_parametrize.py",
    "finite/training/_tra*.py": "finite/training/test_train.py",
    "finite/widening/_hidden_widths.py": "finite/widening/test_widen.py",
    "finite/widening/_resize.py": "finite/widening/test_widen.py",
    "gram/_files.py": "gram/test_gram.py",
    "gram/_kinds.py": "gram/test_gram.py",
    "gram/_plan.py": "gram/test_gram.py",
    "gram/_store.py": "gram/test_killed.py",
    "kernels/_estimate.py": "rules/test_sampled_attention.py",
    "kernels/_gpytorch_kernel.py": "kernels/test_gpytorch.py",
    "kernels/finite_network/_products.py": "kernels/finite_network/test_empirical.py",
    "kernels/finite_network/_survey.py": "kernels/finite_network/test_empirical.py",
    "layers/_elementwise.py": "rules/test_activation_rules.py",
    "native/_plane.py": "native/test_demand.py",
    "native/_runner.py": "native/test_engine.py",
    "native/families/_family.py": "native/families/test_families.py",
    "native/families/_input.py": "native/test_rescaling.py",
    "native/families/_linear.py": "native/families/test_families.py",
    "native/families/_rectified.py": "native/families/test_families.py",
    "program/*.py": "rules/every_family.py",  # each operation: its finite form against its rule
    "rules/_activation.py": "rules/test_activation_rules.py",
    "rules/_crop.py": "kernels/test_positions.py",
    "rules/_engine.py": "rules/test_random_networks.py",
    "rules/_sizes.py": "kernels/test_groups.py",
    "rules/_plan.py": "rules/test_rule.py",
    "rules/_sketch.py": "kernels/test_random_features.py",
    "solvers/_cholesky.py": "solvers/test_solve.py",
    "solvers/_falkon.py": "solvers/test_nystrom.py",
    "testing/*.py": "rules/every_family.py",
    "trace/_builder.py": "trace/test_trace.py",
    "trace/_gains.py": "kernels/test_infinite_width.py",
    "trace/_layout.py": "trace/matchers/test_shapes.py",
    "trace/_nodes.py": "trace/matchers/test_refusals.py",
    "trace/_packed.py": "kernels/test_groups.py",
    "trace/_reader.py": "trace/test_trace.py",
    "trace/_values.py": "trace/matchers/test_shapes.py",
    "trace/adaptation/_graph.py": "trace/adaptation/test_adapt.py",
    "trace/matchers/_attention.py": "rules/test_attention.py",
    "trace/matchers/_norm.py": "rules/test_normalize.py",
    "trace/matchers/_registry.py": "trace/matchers/test_refusals.py",
    "trace/matchers/_tokens.py": "rules/test_tokens.py",
}


def lone_files(sources: Path = SOURCES, tests: Path = TESTS) -> list[str]:
    """Source files without a test file of their name."""
    lone = []
    for path in sorted(sources.rglob("*.py")):
        name = path.relative_to(sources)
        mirrored = tests / name.parent / f"test_{name.stem.strip('_')}.py"
        if name.name != "__init__.py" and not mirrored.exists():
            lone.append(name.as_posix())
    return lone


pytestmark = pytest.mark.skipif(
    not SOURCES.exists(), reason="the tests of an installed wheel have no sources beside them"
)


def test_each_file_has_its_tests() -> None:
    untested = [name for name in lone_files() if not any(fnmatch(name, pattern) for pattern in TOGETHER)]
    assert not untested, f"write tests/FOLDER/test_NAME.py for {untested}"


@pytest.mark.parametrize("pattern", TOGETHER)
def test_the_list_is_no_longer_than_needed(pattern: str) -> None:
    assert (TESTS / TOGETHER[pattern]).exists()
    assert any(fnmatch(name, pattern) for name in lone_files()), (
        f"{pattern} has its own tests now: take it off the list"
    )
