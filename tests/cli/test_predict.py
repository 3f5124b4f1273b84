from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ntkit

NETS = """
from torch import nn

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.second(self.first(x).relu())

other = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
"""


_FITTED: list[bytes] = []


@pytest.fixture
def classes(program, table) -> None:
    """``m.ntkit`` in the current folder: fitted once, since the table is always the same."""
    if not _FITTED:
        program("fit", "table.csv", "--target", "label", "--drop", "price", "--out", "m.ntkit")
        _FITTED.append(Path("m.ntkit").read_bytes())
    Path("m.ntkit").write_bytes(_FITTED[0])


def test_classes_with_probabilities(program, table, classes):
    found = pd.read_csv(pd.io.common.StringIO(program("predict", "m.ntkit", "table.csv")))
    assert list(found.columns) == ["prediction", "probability of no", "probability of yes"]
    model = ntkit.load_model("m.ntkit")
    expected = model.predict_proba(pd.read_csv("table.csv"))
    np.testing.assert_allclose(found.iloc[:, 1:], expected, rtol=1e-12)
    assert (found["prediction"] == model.predict(pd.read_csv("table.csv"))).all()
    rows = json.loads(program("predict", "m.ntkit", "table.csv", "--json"))
    assert rows[0]["prediction"] == found["prediction"][0] and len(rows) == 60


def test_numbers_with_deviations(program, table, tmp_path: Path):
    program("fit", "table.csv", "--target", "price", "--drop", "label", "--out", "m.ntkit")
    # The target and other columns may be missing from new rows, which come in any order.
    table[["old", "kind", "count", "size"]].to_csv(tmp_path / "new.csv", index=False)
    program("predict", "m.ntkit", "new.csv", "--std", "--out", "p.csv")
    found = pd.read_csv("p.csv")
    mean, std = ntkit.load_model("m.ntkit").predict(pd.read_csv("table.csv"), return_std=True)
    np.testing.assert_allclose(found, np.stack([mean, std], 1), rtol=1e-9)
    assert not program.out and "60 predictions" in program.err


def test_columns_of_categories_stay_text(program, tmp_path: Path):
    random = np.random.default_rng(0)
    codes = random.choice(["01", "1", "x"], 60)
    pd.DataFrame({"code": codes, "y": np.where(codes == "01", "u", "v")}).to_csv(tmp_path / "t.csv", index=False)
    program("fit", "t.csv", "--target", "y", "--out", "m.ntkit")
    pd.DataFrame({"code": ["01", "1"]}).to_csv(tmp_path / "new.csv", index=False)
    lines = program("predict", "m.ntkit", "new.csv").splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["u", "v"]
    # A file that has types may hold them as numbers.
    pd.DataFrame({"code": [1, 1]}).to_parquet(tmp_path / "new.parquet")
    same = program("predict", "m.ntkit", "new.parquet").splitlines()[1:]
    assert [line[:12] for line in same] == [lines[2][:12]] * 2 and not program.err


def test_booleans_with_gaps_are_read_alike_by_fit_and_predict(program, tmp_path: Path):
    random = np.random.default_rng(0)
    flag, size = random.choice(["TRUE", "FALSE", ""], 60), random.standard_normal(60)
    table = pd.DataFrame({"flag": flag, "size": size, "y": np.where((flag == "TRUE") ^ (size > 0), "u", "v")})
    table.to_csv(tmp_path / "t.csv", index=False)
    program("fit", "t.csv", "--target", "y", "--out", "m.ntkit")
    lines = program("predict", "m.ntkit", "t.csv").splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == table["y"].tolist()
    # Other spellings, and no gaps.
    full = table[table["flag"] != ""]
    full.assign(flag=full["flag"].str.title()).to_csv(tmp_path / "t.csv", index=False)
    expected = [line for line, one in zip(lines, flag, strict=True) if one]
    found = program("predict", "m.ntkit", "t.csv").splitlines()[1:]
    assert [line.split(",")[0] for line in found] == [line.split(",")[0] for line in expected]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("size,count,kind,old\ninf,2,a,True\n", "the column 'size' of new.csv has infinite values"),
        ("size,count,kind,old\n1e308,2,a,True\n", "the column 'size' of new.csv has values as large as 1e+308"),
        ("size,count\n1,2\n", "new.csv lacks 'kind', 'old', which the model was fitted with"),
        (
            "size,count,kind,old\nlarge,2,a,True\n",
            "the column 'size' of new.csv must hold numbers, as it did at the fit. Got 'large'",
        ),
        ("size,count,kind,old\n", "no rows"),
    ],
)
def test_other_columns(rows, message, program, classes, tmp_path: Path):
    (tmp_path / "new.csv").write_text(rows)
    assert message in program.fails("predict", "m.ntkit", "new.csv", "--out", "p.csv")
    assert not (tmp_path / "p.csv").exists()


def test_other_models(program, classes, tmp_path: Path):
    assert "there is no model file" in program.fails("predict", "none.ntkit", "table.csv")
    assert "not a model file of ntkit" in program.fails("predict", "table.csv", "table.csv")
    assert "--std is for a regression" in program.fails("predict", "m.ntkit", "table.csv", "--std")
    with zipfile.ZipFile("m.ntkit") as file, zipfile.ZipFile("cut.ntkit", "w") as other:
        for name in file.namelist()[:-1]:
            other.writestr(name, file.read(name))
    assert "lacks the array" in program.fails("predict", "cut.ntkit", "table.csv")
    for out in ("m.ntkit", "table.csv"):
        assert "must not be a file that is read" in program.fails("predict", "m.ntkit", "table.csv", "--out", out)


def test_categories_that_are_all_unknown_are_noted(program, classes, table, tmp_path: Path):
    program("predict", "m.ntkit", "table.csv")
    assert not program.err
    table.assign(kind=["a ", None] * 30).to_csv(tmp_path / "new.csv", index=False)
    program("predict", "m.ntkit", "new.csv")
    assert program.err == "no value of the column 'kind' of new.csv was there at the fit, such as 'a '.\n"


def _changed(change: Callable[[dict[str, Any]], object]) -> None:
    """Write ``x.ntkit``: the model with other JSON."""
    with zipfile.ZipFile("m.ntkit") as file, zipfile.ZipFile("x.ntkit", "w") as other:
        for name in file.namelist():
            content = file.read(name)
            if name == "model.json":
                text = json.loads(content)
                change(text)
                content = json.dumps(text).encode()
            other.writestr(name, content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.pop("notes"), "is not a model that this version can read: KeyError('notes')"),
        (lambda text: text.update(notes=[]), "its notes are no mapping"),
        (lambda text: text["notes"].pop("columns"), "does not say which columns it was fitted with"),
        (
            lambda text: text["model"]["state"]["steps"][0]["tuple"][1]["state"].pop("transformers_"),
            "It may be damaged",
        ),
    ],
)
def test_changed_models(change, message, program, classes):
    _changed(change)
    assert message in program.fails("predict", "x.ntkit", "table.csv")


def test_json_that_is_too_deep(program, classes):
    with zipfile.ZipFile("x.ntkit", "w") as file:
        file.writestr("model.json", "[" * 100_000)
    assert "is not a model file of ntkit, or it is damaged" in program.fails("predict", "x.ntkit", "table.csv")


def test_gaps_in_the_entries_of_inputs(program, net, points, tmp_path: Path):
    program("fit", "points.csv", "--target", "y", "--module", net, "--shape", "2", "--out", "m.ntkit")
    (tmp_path / "new.csv").write_text("a,b\n1,\n")
    assert "has gaps" in program.fails("predict", "m.ntkit", "new.csv")


def test_a_network_of_the_users(program, points, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_nets_of_a_test.py").write_text(NETS)
    program("fit", "points.csv", "--target", "y", "--module", "own_nets_of_a_test:Own", "--out", "m.ntkit")
    assert "--module package.module:attribute" in program.fails("predict", "m.ntkit", "points.csv")
    program("predict", "m.ntkit", "points.csv", "--module", "own_nets_of_a_test:Own")
    message = program.fails("predict", "m.ntkit", "points.csv", "--module", "own_nets_of_a_test:other")
    assert "kernel is not the one" in message
