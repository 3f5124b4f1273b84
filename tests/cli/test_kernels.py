"""``explain``, ``doctor``, ``gram``, ``solve``, ``posterior`` and ``attribute`` against the functions they stand for."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit._src.cli._modules import read_module

NETS = """
from torch import nn

plain = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))

def own_gains():
    import ntkit

    return ntkit.parametrize_ntk(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)), w_std=1.3, b_std=0.2)

def pooled():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 1))

stuck = nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1))
number = 3

class Sorted(nn.Module):
    def forward(self, x):
        return x.sort()[0]

def leave():
    raise SystemExit(0)

def noisy():
    print("a greeting")
    return plain
"""


@pytest.fixture(autouse=True)
def nets(tmp_path: Path) -> None:
    (tmp_path / "nets_of_a_test.py").write_text(NETS)


@pytest.fixture
def x(points) -> torch.Tensor:
    return torch.from_numpy(points[["a", "b"]].to_numpy().copy())


def test_explain(program, net):
    expected = ntkit.infinite_width(read_module(net)).explain((2,))
    assert program("explain", net, "--shape", "2") == f"{expected}\n"
    found = json.loads(program("explain", net, "--shape", "2", "--json"))
    assert [row["operation"] for row in found["operations"]] == [row.operation for row in expected.rows]
    assert "--shape must be the shape" in program.fails("explain", net)
    message = program.fails("explain", "nets_of_a_test:pooled", "--shape", "3,8,8")
    assert "1 (BatchNorm2d), 3 (MaxPool2d)" in message and "ntkit doctor" in message


def test_doctor(program, net):
    assert "has an infinite-width limit as it is" in program("doctor", net, "--shape", "2")
    found = json.loads(program("doctor", "nets_of_a_test:pooled", "--shape", "3,8,8", "--json"))
    assert [one["what"] for one in found["problems"]] == ["BatchNorm2d", "MaxPool2d"] and not found["left"]
    assert [one["after"] for one in found["changes"]] == ["nothing", "AvgPool2d"] and "AvgPool2d" in found["adapted"]
    assert "AvgPool2d" in program("doctor", "nets_of_a_test:pooled", "--shape", "3,8,8", "--norm", "layer")
    assert "left: 1: InstanceNorm2d" in program("doctor", "nets_of_a_test:stuck", "--shape", "3,8,8", status=1)
    # Its inputs cannot be guessed, so nothing is known of it without a shape.
    assert "cannot be guessed" in program.fails("doctor", "nets_of_a_test:Sorted")
    program("doctor", "nets_of_a_test:Sorted", "--shape", "3", status=1)
    program("doctor", net, "--norm", "batch", status=2)
    assert "--norm" in program.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package.nets:net", "cannot import no_such_package.nets:net: ModuleNotFoundError"),
        ("nets_of_a_test:other", "cannot import nets_of_a_test:other: AttributeError"),
        ("nets_of_a_test:number", "cannot import nets_of_a_test:number: TypeError"),
        ("nets_of_a_test:leave", "cannot import nets_of_a_test:leave: SystemExit: 0"),
        ("json:dumps", "cannot import json:dumps: TypeError"),
        ("builtins:list", "must be a torch.nn.Module, or return one when called. Got list"),
        ("nets_of_a_test", "must be package.module:attribute or a TOML file"),
        ("none.toml", "cannot read none.toml"),
        ("bad.toml", "cannot read bad.toml"),
        ("other.toml", "must have [[layers]] and nothing else. Got width"),
    ],
)
def test_networks_that_are_none(name, message, program, tmp_path: Path):
    (tmp_path / "bad.toml").write_text("[[layers")
    (tmp_path / "other.toml").write_text("width = 3\n")
    assert message in program.fails("explain", name, "--shape", "2")


def test_what_a_module_prints_is_no_result(program):
    json.loads(program("explain", "nets_of_a_test:noisy", "--shape", "2", "--json"))
    assert program.err == "a greeting\n"


@pytest.mark.parametrize("kernel", ["ntk", "nngp"])
def test_gram_is_resumed_and_solved(kernel, program, net, x, tmp_path: Path):
    arguments = [
        "gram",
        net,
        "points.csv",
        "--drop",
        "y",
        "--kernel",
        kernel,
        "--b-std",
        "0.3",
        "--out",
        "k.npy",
        "--tile",
        "8",
    ]
    found = json.loads(program(*arguments, "--json"))
    assert found["shape"] == [20, 20]
    limit = ntkit.infinite_width(read_module(net), b_std=0.3)
    expected = getattr(limit, kernel)(x)
    torch.testing.assert_close(ntkit.open_gram("k.npy").to_dense(), expected, rtol=1e-13, atol=0)
    # The same points from another file are the same matrix: nothing is computed again.
    written = (tmp_path / "k.npy").stat().st_mtime_ns
    arguments[2:5] = ["points.npy"]
    assert program(*arguments) == "k.npy: 20 x 20\n" and (tmp_path / "k.npy").stat().st_mtime_ns == written
    program("solve", "k.npy", "points.csv", "--target", "y", "--ridge", "1e-3", "--out", "a.npy")
    y = torch.tensor(pd.read_csv("points.csv")["y"].to_numpy().copy())
    np.testing.assert_allclose(np.load("a.npy"), ntkit.solve(expected, y, ridge=1e-3).value, rtol=1e-8)
    assert "Solved" in program.out


def test_gram_between_two_files_with_shapes_and_dtypes(program, x, tmp_path: Path):
    (tmp_path / "conv.toml").write_text(
        '[[layers]]\nlayer = "Conv1d"\nin_channels = 1\nout_channels = 4\nkernel_size = 2\n[[layers]]\nlayer = "ReLU"\n'
        '[[layers]]\nlayer = "Flatten"\n[[layers]]\nlayer = "Linear"\nin_features = 4\nout_features = 1\n'
    )
    np.save(tmp_path / "other.npy", x[:3].numpy())
    program(
        "gram",
        "conv.toml",
        "other.npy",
        "--other",
        "points.npy",
        "--shape",
        "1,2",
        "--dtype",
        "float32",
        "--out",
        "k.npy",
    )
    images = x.float()[:, None]
    expected = ntkit.infinite_width(read_module("conv.toml")).ntk(images[:3], images)
    torch.testing.assert_close(ntkit.open_gram("k.npy").to_dense(), expected)


def test_gram_and_solve_refuse(program, net, points, tmp_path: Path):
    np.save(tmp_path / "gaps.npy", np.array([[1.0, np.nan]]))
    np.save(tmp_path / "flat.npy", np.ones(4))
    (tmp_path / "broken.npy").write_bytes(b"numbers")
    for arguments, message in (
        ([net, "points.csv", "--out", "k.csv"], "must end in .zarr or .npy"),
        ([net, "none.npy", "--out", "k.npy"], "there is no file none.npy"),
        ([net, "gaps.npy", "--out", "k.npy"], "must be finite"),
        ([net, "broken.npy", "--out", "k.npy"], "cannot read broken.npy as npy"),
        ([net, "flat.npy", "--shape", "2", "--out", "k.npy"], "must have at least two axes"),
        ([net, "points.csv", "--drop", "z", "--out", "k.npy"], "has no column 'z' to leave out"),
        ([net, "points.txt", "--out", "k.npy"], "there is no file points.txt"),
        ([net, "nets_of_a_test.py", "--out", "k.npy"], "DATA must be CSV"),
        (
            [net, "points.csv", "--drop", "y", "--out", "k.npy", "--scheduler", "nonsense"],
            "--scheduler must be local or an address such as tcp://host:8786. Got 'nonsense'",
        ),
    ):
        assert message in program.fails("gram", *arguments), arguments
    assert "no stored Gram matrix" in program.fails("solve", "k.npy", "points.csv", "--target", "y", "--out", "a.npy")
    assert "must end in .npy" in program.fails("solve", "k.npy", "points.csv", "--target", "y", "--out", "a.csv")
    assert not list(tmp_path.glob("k.*"))
    for option in (["--kernel", "rbf"], ["--dtype", "int8"], ["--tile", "0"]):
        program("gram", net, "points.csv", "--out", "k.npy", *option, status=2)
        assert option[0] in program.err


def test_kernels_of_gram_posterior_and_fit_on_a_cluster(program, net, x, monkeypatch):
    from distributed import LocalCluster

    # By way of sys.modules: ntkit.gram is a function too.
    monkeypatch.setattr(sys.modules["ntkit._src.gram._gram"], "_LEAST_TILE", 8)
    posterior = ["posterior", net, "points.csv", "points.csv", "--target", "y", "--time", "2", "--ridge", "0.1"]
    fit = ["fit", "points.csv", "--target", "y", "--json", "--out"]
    here = program(*posterior)
    program(*fit, "here.ntkit")
    # A worker in this process, reached through the network all the same; tests/gram has workers in processes of their own.
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**options, protocol="tcp") as cluster:
        there = ["--scheduler", cluster.scheduler_address]
        program("gram", net, "points.npy", "--out", "k.npy", "--tile", "8", *there)
        spread = program(*posterior, *there)
        program(*fit, "there.ntkit", *there)
    torch.testing.assert_close(ntkit.open_gram("k.npy").to_dense(), ntkit.infinite_width(read_module(net)).ntk(x))
    for one, other in zip(*(pd.read_csv(io.StringIO(text)).to_numpy() for text in (here, spread)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    one, other = (ntkit.load_model(f"{name}.ntkit").steps[-1][1] for name in ("here", "there"))
    np.testing.assert_allclose(one.dual_coef_, other.dual_coef_, rtol=1e-6)
    assert one.ridge_ == other.ridge_ and "_client" not in vars(other)


@pytest.mark.parametrize("command", ["fit", "evaluate", "posterior", "solve"])
def test_no_cluster_there(command, program, net, points, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = sorted(tmp_path.iterdir())
    arguments = {
        "fit": ["points.csv", "--target", "y", "--out", "m.ntkit"],
        "evaluate": ["points.csv", "--target", "y"],
        "posterior": [net, "points.csv", "points.csv", "--target", "y"],
        "solve": ["k.npy", "points.csv", "--target", "y", "--out", "a.npy"],
    }[command]

    def silence(*_: object, **__: object) -> None:
        raise OSError("timed out")

    monkeypatch.setattr("distributed.Client", silence)
    for scheduler, said in (
        ("nonsense", "must be local or an address such as tcp://host:8786. Got 'nonsense'"),
        ("tcp://127.0.0.1:1", "must be a running Dask scheduler such as tcp://host:8786: timed out"),
    ):
        message = program.fails(command, *arguments, "--scheduler", scheduler)
        assert ("ntkit gram takes it" if command == "solve" else said) in message
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("mode", "time"), [("ntk", "2.5"), ("nngp", "inf")])
def test_posterior(mode, time, program, net, x, tmp_path: Path):
    (tmp_path / "new.csv").write_text("a,b\n0.5,1\n2,-1\n")
    arguments = [
        "posterior",
        net,
        "points.csv",
        "new.csv",
        "--target",
        "y",
        "--mode",
        mode,
        "--time",
        time,
        "--ridge",
        "0.1",
    ]
    found = pd.read_csv(io.StringIO(program(*arguments)))
    limit = ntkit.infinite_width(read_module(net))
    y, new = (
        torch.tensor(pd.read_csv("points.csv")["y"].to_numpy().copy()),
        torch.tensor([[0.5, 1.0], [2.0, -1.0]]).double(),
    )
    expected = ntkit.posterior(limit, x, y, new, mode=mode, t=float(time), ridge=0.1)
    np.testing.assert_allclose(found["mean"], expected.mean, rtol=1e-9)
    np.testing.assert_allclose(found["std"], expected.variance.sqrt(), rtol=1e-9)
    program(*arguments, "--out", "p.csv")
    pd.testing.assert_frame_equal(pd.read_csv("p.csv"), found)
    assert len(json.loads(program(*arguments, "--json"))) == 2


def test_attribute(program, x, tmp_path: Path):
    torch.manual_seed(0)
    trained = mlp(2, 8, 1)
    torch.save(trained.state_dict(), tmp_path / "state.pt")
    (tmp_path / "new.csv").write_text("a,b\n0.5,1\n2,-1\n")
    arguments = ["attribute", "nets_of_a_test:plain", "points.csv", "new.csv", "--target", "y", "--weights", "state.pt"]
    found = json.loads(program(*arguments, "--top", "3", "--json"))
    y, new = (
        torch.tensor(pd.read_csv("points.csv")["y"].to_numpy().copy()).float(),
        torch.tensor([[0.5, 1.0], [2.0, -1.0]]),
    )
    scores, rows = ntkit.attribute(trained, x.float(), y, new).top(3)
    assert [one["training_rows"] for one in found["predictions"]] == rows.tolist()
    np.testing.assert_allclose([one["scores"] for one in found["predictions"]], scores, rtol=1e-5)
    assert program(*arguments).splitlines()[0].startswith("test row")
    (tmp_path / "state.pt").write_bytes(b"not a state")
    assert "--weights must be a state dictionary" in program.fails(*arguments)


def test_columns_go_by_their_names(program, net, points, tmp_path: Path):
    """Test rows whose columns are in another order, as arrays, or renamed."""
    torch.save(read_module(net).state_dict(), tmp_path / "w.pt")
    points.to_csv(tmp_path / "same.csv", index=False)
    points[["b", "y", "a"]].assign(more=1).to_csv(tmp_path / "other.csv", index=False)
    points.rename(columns={"a": "c"}).to_csv(tmp_path / "renamed.csv", index=False)
    commands = {
        "posterior": ["posterior", net, "points.csv", "TEST", "--target", "y"],
        "attribute": ["attribute", net, "points.csv", "TEST", "--target", "y", "--weights", "w.pt"],
    }
    for name, command in commands.items():
        found = {test: program(*[test if one == "TEST" else one for one in command])
                 for test in ("same.csv", "other.csv", "points.npy")}  # fmt: skip
        assert found["other.csv"] == found["same.csv"] == found["points.npy"], name
        message = program.fails(*["renamed.csv" if one == "TEST" else one for one in command])
        assert message == "renamed.csv lacks 'a', which the other file has."
    points[["b", "a"]].to_csv(tmp_path / "other.csv", index=False)
    program("gram", net, "points.csv", "--drop", "y", "--other", "other.csv", "--out", "k.npy")
    program("gram", net, "points.npy", "--out", "own.npy")
    np.testing.assert_allclose(np.load("k.npy"), np.load("own.npy"), rtol=1e-12)
    message = program.fails("gram", net, "points.npy", "--out", "own.npy", "--kernel", "nngp")
    assert "infinite-width nngp requested. Nothing was changed." in message and "--restart" in message


def test_what_is_not_solved_is_not_written(program, net, points, tmp_path: Path):
    program("gram", net, "points.npy", "--out", "k.npy")
    solve = ["solve", "k.npy", "points.csv", "--target", "y", "--ridge", "1e-3", "--out"]
    assert "nothing was written" in program.fails(*solve, "a.npy", "--method", "eigenpro")
    assert not (tmp_path / "a.npy").exists()
    assert "must not be a file that is read" in program.fails(*solve, "k.npy")


def test_attribute_refuses_weights(program, net, points, tmp_path: Path):
    command = ["attribute", net, "points.csv", "points.npy", "--target", "y"]
    assert "without its trained weights: write --weights" in program.fails(*command)
    (tmp_path / "w.pt").write_bytes(b"weights")
    message = program.fails(*command, "--weights", "w.pt")
    assert "w.pt is damaged or holds other Python objects" in message and "weights_only" not in message


def test_gains_are_those_of_the_module(program, x, tmp_path: Path):
    """Without options: those of a module in the NTK parametrisation, or sqrt(2) and 0."""
    (tmp_path / "new.csv").write_text("a,b\n0.5,1\n2,-1\n")
    net = mlp(2, 8, 1)
    for name, gains in (("own_gains", {"w_std": 1.3, "b_std": 0.2}), ("plain", {"w_std": 2**0.5, "b_std": 0.0})):
        module = f"nets_of_a_test:{name}"
        program("gram", module, "points.csv", "--drop", "y", "--out", f"{name}.npy")
        limit = ntkit.infinite_width(net, **gains)
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), limit.ntk(x), rtol=1e-9)
        program("posterior", module, "points.csv", "new.csv", "--target", "y", "--mode", "nngp", "--ridge", "0.1")
