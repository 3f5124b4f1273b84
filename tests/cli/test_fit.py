from __future__ import annotations

import json
import resource
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import ntkit
from ntkit import NTKClassifier
from ntkit._src.estimators._blend import EFFORTS
from ntkit._src.solvers import default_centres

BAD = {
    "no target": ("a,b\n1,2\n3,4\n5,5\n", "has no column 'y'. Its columns are 'a', 'b'."),
    "semicolons": ("a;y\n1;2\n", "Its columns are 'a;y'. Separate columns by commas."),
    "spaces in names": ("a, y\n1, 2\n", "Its columns are 'a', ' y'."),
    "gaps in the target": ("a,y\n1,2\n3,\n5,5\n", "the target 'y' is missing in 1 of 3 rows, first in row 2"),
    "constant columns alone": ("a,b,y\n1,x,2.5\n1,x,4\n1,x,5\n", "no column other than the target 'y' that differs"),
    "a class with one row": ("a,y\n1,u\n2,u\n3,v\n", "the class v of the target 'y' has one row"),
    "one class": ("a,y\n1,u\n2,u\n3,u\n", "has one class, u"),
    "doubled names": ("a,a,y\n1,2,3\n", "has more than one column named 'a'"),
    "doubled names after empty lines": ("\n\na,a,y\n1,2,3\n", "has more than one column named 'a'"),
    "more fields than names": ("a,y\n1,2,3\n4,5,6\n", "cannot read bad.csv as csv: Expected 2 fields in line 2, saw 3"),
    "a header alone": ("a,b,y\n", "has 3 columns and no rows"),
    "nothing": ("", "is empty"),
    "broken rows": ("a,y\n1,2\n1,2,3,4\n", "cannot read bad.csv as csv"),
    "infinite": ("a,y\n1,1.5\ninf,2\n3,4\n", "the column 'a' of bad.csv has infinite values"),
    "overflow": ("a,y\n1,1.5\n1e200,2\n3,4\n", "the column 'a' of bad.csv has values as large as 1e+200"),
    "infinite classes": ("a,y\n1,inf\n2,inf\n3,4\n4,4\n", "the target 'y' must be finite"),
    "a large target": ("a,y\n1,1e300\n2,2\n3,4.5\n", "the target 'y' has values as large as 1e+300"),
    "one value": ("a,y\n1,2.5\n2,2.5\n3,2.5\n", "must have at least two different values"),
    "a name per row": ("a,y\n" + "\n".join(f"{n},name{n}" for n in range(50)), "50 classes in 50 rows"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_tables_that_no_model_fits(text, message, program, tmp_path: Path):
    (tmp_path / "bad.csv").write_text(text)
    assert message in program.fails("fit", "bad.csv", "--target", "y", "--out", "m.ntkit")
    assert [one.name for one in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv", "--target", "price", "--out", "m"], "there is no file none.csv"),
        (["table.csv", "--target", "price", "--out", "none/m"], "must be in a folder that exists"),
        (["table.csv", "--target", "price", "--out", "."], "must be a file"),
        (["table.csv", "--target", "price", "--out", "/dev/null"], "/dev/null is a device or a pipe"),
        (["table.csv", "--target", "price", "--out", "./table.csv"], "must not be a file that is read"),
        (["table.csv", "--target", "price", "--out", "m", "--drop", "weight"], "no column 'weight' to leave out"),
        (
            ["table.csv", "--target", "price", "--out", "m", "--module", "no_such_package:net"],
            "cannot import no_such_package:net",
        ),
        (["table.csv", "--target", "label", "--out", "m", "--task", "regression"], "must be numbers for a regression"),
        (["table.csv", "--target", "price", "--out", "m", "--shape", "2,2"], "needs columns of numbers without gaps"),
        (["table.csv", "--target", "price", "--out", "m", "--shape", "2,a"], "--shape must be positive whole numbers"),
    ],
)
def test_requests_that_cannot_be_met(arguments, message, program, table, tmp_path: Path):
    assert message in program.fails("fit", *arguments)
    assert [one.name for one in tmp_path.iterdir()] == ["table.csv"]


def test_classes_and_numbers(program, table):
    out = program("fit", "table.csv", "--target", "label", "--drop", "price", "--out", "m.ntkit", "--json")
    found = json.loads(out)
    assert (found["task"], found["rows"], found["columns"]) == ("classification", 60, 4)
    assert "2 classes: classification" in program.err
    model = ntkit.load_model("m.ntkit")
    assert (model.predict(pd.read_csv("table.csv")) == table["label"]).mean() > 0.9
    program("fit", "table.csv", "--target", "price", "--drop", "label", "--out", "m.ntkit")
    assert "price" in program.out and "holds numbers: regression" in program.err


def test_constant_columns_are_left_out(program, table, tmp_path: Path):
    table.assign(same=1, empty=np.nan).to_csv(tmp_path / "table.csv", index=False)
    found = json.loads(program("fit", "table.csv", "--target", "label", "--out", "m.ntkit", "--json"))
    assert found["left_out"] == ["same", "empty"]


def test_notes_on_columns(program, table, tmp_path: Path):
    table.drop(columns="label").assign(day="2020-01-01").to_csv(tmp_path / "table.csv")
    program("fit", "table.csv", "--target", "price", "--out", "m.ntkit")
    assert "categories, since they do not hold numbers: kind\n" in program.err
    assert "table.csv has a column without a name, as row numbers have: --drop 'Unnamed: 0'" in program.err
    program("fit", "table.csv", "--target", "price", "--drop", "Unnamed: 0", "--out", "m.ntkit")
    assert "without a name" not in program.err


def test_other_files(program, points, tmp_path: Path):
    import zarr

    x, y = points[["a", "b"]].to_numpy(), points["y"].to_numpy()
    np.savez(tmp_path / "d.npz", x=x, y=y)
    points.to_parquet(tmp_path / "d.parquet")
    group = zarr.open_group(str(tmp_path / "d.zarr"), mode="w")
    group["x"], group["y"] = x, y
    program("fit", "points.csv", "--target", "y", "--out", "csv.ntkit")
    expected = ntkit.load_model("csv.ntkit").predict(points[["a", "b"]])
    for suffix in ("npz", "parquet", "zarr"):
        program("fit", f"d.{suffix}", "--target", "y", "--out", "m.ntkit")
        names = ["a", "b"] if suffix == "parquet" else ["x.0", "x.1"]
        found = ntkit.load_model("m.ntkit").predict(pd.DataFrame(x, columns=names))
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=suffix)


def test_columns_of_other_kinds(program, points, tmp_path: Path):
    numbers = [Decimal(f"{value:.3f}") for value in points["a"]]
    points.assign(a=numbers).to_parquet(tmp_path / "decimal.parquet")
    found = json.loads(program("fit", "decimal.parquet", "--target", "y", "--out", "m.ntkit", "--json"))
    assert found["features"] == 2, "decimals are numbers, not categories"
    points.assign(a=[10**30 * n**2 for n in range(20)]).to_csv(tmp_path / "long.csv", index=False)
    found = json.loads(program("fit", "long.csv", "--target", "y", "--out", "m.ntkit", "--json"))
    assert found["features"] == 2
    points.assign(a=[[1, 2]] * 20).to_parquet(tmp_path / "lists.parquet")
    assert "the column 'a' of lists.parquet holds lists" in program.fails(
        "fit", "lists.parquet", "--target", "y", "--out", "n"
    )
    dates = pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(20), unit="D")
    points.assign(y=dates).to_parquet(tmp_path / "dates.parquet")
    fit = ["fit", "dates.parquet", "--target", "y", "--task", "regression", "--out", "n"]
    assert "Got dates or times" in program.fails(*fit)
    np.savez(tmp_path / "complex.npz", x=points[["a"]].to_numpy() * 1j, y=points["y"])
    assert "complex numbers" in program.fails("fit", "complex.npz", "--target", "y", "--out", "n")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    message = program.fails("fit", "objects.npy", "--target", "y", "--out", "n")
    assert message == "cannot read objects.npy as npy: it holds Python objects, or is damaged"
    np.save(tmp_path / "one.npy", np.ones(3))
    for content in (b"", b"PK\x03\x04", b"numbers", (tmp_path / "one.npy").read_bytes()):
        (tmp_path / "cut.npz").write_bytes(content)
        assert "cannot read cut.npz as npz" in program.fails("fit", "cut.npz", "--target", "y", "--out", "n")
    assert not (tmp_path / "n").exists()


def test_fractions_as_classes(program, points, tmp_path: Path):
    points.assign(y=np.where(points["a"] > 0, 0.5, 1.5)).to_csv(tmp_path / "points.csv", index=False)
    program("fit", "points.csv", "--target", "y", "--task", "classification", "--out", "m.ntkit")
    assert "probability of 0.5,probability of 1.5" in program("predict", "m.ntkit", "points.csv")


def test_images_and_a_network(program, tmp_path: Path):
    digits = load_digits()
    rows = digits.target < 3
    rows[np.flatnonzero(rows)[60:]] = False
    np.savez(tmp_path / "d.npz", x=digits.images[rows][:, None], y=digits.target[rows])
    (tmp_path / "net.toml").write_text(
        '[[layers]]\nlayer = "Conv2d"\nin_channels = 1\nout_channels = 4\nkernel_size = 3\n[[layers]]\nlayer = "ReLU"\n'
        '[[layers]]\nlayer = "Flatten"\n[[layers]]\nlayer = "Linear"\nin_features = 144\nout_features = 1\n'
    )
    program("fit", "d.npz", "--target", "y", "--module", "net.toml", "--shape", "1,8,8", "--out", "m.ntkit")
    program("predict", "m.ntkit", "d.npz", "--out", "p.csv")
    assert (pd.read_csv("p.csv")["prediction"] == digits.target[rows]).mean() > 0.9


def test_many_rows_take_centres(program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(EFFORTS, "fast", replace(EFFORTS["fast"], exact_rows=50))
    x = np.random.default_rng(0).standard_normal((120, 2))
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x[:, 0] + x[:, 1]}).to_csv(tmp_path / "t.csv", index=False)
    program("fit", "t.csv", "--target", "y", "--out", "m.ntkit", "--effort", "fast")
    assert len(ntkit.load_model("m.ntkit").steps[-1][1].X_fit_) == default_centres(120) == 120
    program("fit", "t.csv", "--target", "y", "--out", "m.ntkit", "--centres", "50")
    assert len(ntkit.load_model("m.ntkit").steps[-1][1].X_fit_) == 50


def test_a_full_disk(program, table, tmp_path: Path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        message = program.fails("fit", "table.csv", "--target", "label", "--out", "m.ntkit")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "too large" in message
    assert [one.name for one in tmp_path.iterdir()] == ["table.csv"]


def test_interrupted(program, table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NTKClassifier, "fit", stop)
    program("fit", "table.csv", "--target", "label", "--out", "m.ntkit", status=130)
    assert "stopped" in program.err
    assert [one.name for one in tmp_path.iterdir()] == ["table.csv"]
