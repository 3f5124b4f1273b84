"""The examples on the pages run, commands exist, and the README shows no figure without a stored record."""

from __future__ import annotations

import ast
import json
import re
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest
import torch

import ntkit

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").glob("*.md")))]
CLUSTERS = ("dask_jobqueue", "dask_kubernetes")  # these examples need a cluster, and are only read
EXAMPLES = [
    pytest.param(page, code, id=f"{page}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), flags=re.DOTALL))
]


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_example_runs(page, code, capsys):
    program = compile(code, page, "exec")
    if any(name in code for name in CLUSTERS):
        return
    if "ntkit_studies" in code:
        pytest.importorskip("ntkit_studies")
    names: dict[str, object] = {}
    exec(program, names)
    if "accuracy" in names:
        assert names["accuracy"] > 0.8
        assert names["K"].shape == (50, 50)


def commands(page: str) -> list[str]:
    """Give the commands of a page, in blocks for a shell and in sentences."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL))
    return re.findall(r"^ntkit [^#\n]+", blocks, flags=re.MULTILINE) + re.findall(r"`(ntkit [a-z]+\b[^`|\n]*)`", text)


COMMANDS = sorted({command.strip() for page in PAGES for command in commands(page)})


@pytest.mark.parametrize("command", COMMANDS)
def test_command_exists_with_its_options(command):
    """Commands in code blocks and sentences: their names and options; the tests of the studies have those of each study."""
    pytest.importorskip("typer")
    from ntkit._src.cli._app import load

    _, name, *words = command.split()
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    known = {one for parameter in load(name).params for one in parameter.opts}
    assert name == "run" or options <= {*known, "--help", "--json"}


def test_network_written_as_toml(tmp_path):
    from ntkit._src.cli._modules import read_module

    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/command_line.md").read_text("utf-8"), flags=re.DOTALL)
    (tmp_path / "net.toml").write_text(text, encoding="utf-8")
    net = read_module(str(tmp_path / "net.toml"))
    assert net(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert not net[-1].weight.requires_grad


def test_there_are_examples():
    assert len(EXAMPLES) >= 7


def test_the_readme_is_one_screen_and_has_no_figure_of_its_own():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 70
    by_hand = re.sub(r"<!-- speed: begin -->.*?<!-- speed: end -->", "", text, flags=re.DOTALL)
    by_hand = re.sub(r"```.*?```", "", by_hand, flags=re.DOTALL)
    figures = re.findall(r"\d[\d.,]*\s*(?:%|times|x\b|ms\b|milliseconds|seconds|minutes|hours)", by_hand)
    assert not figures, "a figure of speed or accuracy must come from a stored record"


def test_every_benchmark_record_says_where_it_comes_from():
    lines = (ROOT / "docs/results/benchmarks.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        record = json.loads(line)
        assert {"commit", "date", "machine", "peer", "ratios", "milliseconds per entry"} <= set(record)
        for name, ratios in record["ratios"].items():
            times = record["milliseconds per entry"][name]
            for kind, ratio in ratios.items():
                assert ratio == pytest.approx(times["neural-tangents"] / times[kind], rel=0.05)


def test_every_public_name_is_on_the_page_of_the_api():
    listed = set(re.findall(r"^   ([\w.]+)$", (ROOT / "docs/api.rst").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert listed == set(public_names(ntkit, "")), "docs/api.rst must list all public names, and no others"


def public_names(module, prefix):
    """The names of a module and of the modules in it; a name of the package itself is listed once."""
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            yield from public_names(value, f"{prefix}{name}.")
        elif not prefix or name not in ntkit.__all__:
            yield prefix + name


def test_the_stub_lists_the_names_that_are_found():
    stub = ROOT / "src/ntkit/__init__.pyi"
    if not stub.exists():
        pytest.skip("installed from a wheel there is no src/")
    names = {found for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)
             for found in (alias.name for alias in node.names)}  # fmt: skip
    assert names == set(ntkit.__all__) and len(ntkit.__all__) < 65


def test_every_folder_and_every_file_of_the_core_is_described():
    package = ROOT / "src/ntkit/_src"
    if not package.exists():
        pytest.skip("installed from a wheel there is no src/")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {path.parent.name for path in package.rglob("*/__init__.py")}
    assert not [name for name in folders if f"{name}/`" not in contributing]
    architecture = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    files = {path.name for path in (package / "native/core").rglob("*.*")}
    assert not [name for name in files if not re.search(rf"[`/]{re.escape(name)}`", architecture)]


NEURAL_TANGENTS = {
    "stax": """ABRelu Abs Aggregate AggregateImplementation AttentionMechanism AvgPool Bool Conv ConvLocal ConvTranspose Cos Dense
        Diagonal DotGeneral Dropout Elementwise ElementwiseNumerical Erf Exp ExpNormalized FanInConcat FanInProd FanInSum FanOut
        Flatten Gabor Gaussian Gelu GlobalAvgPool GlobalSelfAttention GlobalSumPool Hermite Identity ImageResize Index LayerNorm
        LeakyRelu MaskedArray Monomial Padding Polynomial PositionalEmbedding Rbf RectifiedMonomial Relu Sigmoid_like Sign Sin
        Slice SumPool layer parallel repeat requires serial supports_masking unmask_fn""",
    "nt": """Kernel NtkImplementation batch empirical_kernel_fn empirical_nngp_fn empirical_ntk_fn empirical_ntk_vp_fn
        experimental.empirical_ntk_fn_tf linearize monte_carlo_kernel_fn predict.gp_inference predict.gradient_descent
        predict.gradient_descent_mse predict.gradient_descent_mse_ensemble predict.max_learning_rate taylor_expand""",
}
"""The public names of neural-tangents 0.6.5."""


def test_every_name_of_neural_tangents_has_a_row_and_every_counterpart_exists():
    text = (ROOT / "docs/from_neural_tangents.md").read_text(encoding="utf-8")
    theirs = " ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("|"))
    missing = [name for name in NEURAL_TANGENTS["stax"].split() if not re.search(rf"`{re.escape(name)}\b", theirs)]
    missing += [name for name in NEURAL_TANGENTS["nt"].split() if not re.search(rf"`nt\.{re.escape(name)}\b", theirs)]
    assert not missing
    for name in re.findall(r"\bntkit\.([\w.]*\w)", text):
        attrgetter(name)(ntkit)
    for name in re.findall(r"\bnn\.([A-Z]\w+)", text):
        getattr(torch.nn, name)
