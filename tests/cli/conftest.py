from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ntkit._src.cli._app import app


class Program:
    """The program in this process, in a folder of its own."""

    def __init__(self) -> None:
        self.status, self.out, self.err = 0, "", ""

    def __call__(self, *arguments: object, status: int = 0) -> str:
        """Run a command, check its exit status and give what it printed to the standard output."""
        result = CliRunner().invoke(app, [str(one) for one in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.status, self.out, self.err = result.exit_code, result.stdout, result.stderr
        assert result.exit_code == status, result.output + result.stderr
        return self.out

    def fails(self, *arguments: object) -> str:
        """Run a command that must be refused, with one line on the standard error stream; give that line."""
        self(*arguments, status=2)
        lines = [line for line in self.err.splitlines() if line.startswith("ntkit: error: ")]
        assert len(lines) == 1 and not self.out, self.err
        return lines[0].removeprefix("ntkit: error: ")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.chdir(tmp_path)
    return Program()


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    """Mixed columns with gaps; ``table.csv`` in the current folder."""
    random, n = np.random.default_rng(0), 60
    made = pd.DataFrame(
        {
            "size": random.standard_normal(n).round(3),
            "count": random.integers(0, 5, n),
            "kind": random.choice(["a", "b", "c"], n),
            "old": random.uniform(size=n) < 0.5,
        }
    )
    made["price"] = (2 * made["size"] + made["count"] + 0.05 * random.standard_normal(n)).round(4)
    made["label"] = np.where((made["size"] > 0) ^ (made["kind"] == "a"), "yes", "no")
    made.loc[3, "size"] = np.nan
    made.loc[5, "kind"] = None
    made.to_csv(tmp_path / "table.csv", index=False)
    return made


@pytest.fixture
def net(tmp_path: Path) -> str:
    """A network of two inputs, described in a file."""
    (tmp_path / "net.toml").write_text(
        '[[layers]]\nlayer = "Linear"\nin_features = 2\nout_features = 8\n\n[[layers]]\nlayer = "ReLU"\n\n'
        '[[layers]]\nlayer = "Linear"\nin_features = 8\nout_features = 1\n'
    )
    return "net.toml"


@pytest.fixture
def points(tmp_path: Path) -> pd.DataFrame:
    """Two inputs and a target; ``points.csv`` in the current folder, and the inputs alone in ``points.npy``."""
    x = np.random.default_rng(1).standard_normal((20, 2))
    made = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sin(x[:, 0])})
    made.to_csv(tmp_path / "points.csv", index=False)
    np.save(tmp_path / "points.npy", x)
    return made
