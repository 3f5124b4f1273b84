from __future__ import annotations

import io
import json
import pickle
import resource
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from tests.cases import mlp
from torch import nn

import ntkit
from ntkit import infinite_width
from ntkit._src.estimators.saved import read_model
from ntkit.errors import InputError, NotFittedError

RANDOM = np.random.default_rng(0)
X, NEW = RANDOM.standard_normal((40, 4)), RANDOM.standard_normal((7, 4))
NUMBERS = np.sin(X[:, 0]) + X[:, 1]
WORDS = np.array(["no", "perhaps", "yes"])[np.digitize(X[:, 0], [-0.5, 0.5])]


def conv() -> nn.Module:
    first = nn.Conv1d(1, 8, 2, padding=1).requires_grad_(False)
    return nn.Sequential(nn.Unflatten(1, (1, 4)), first, nn.GELU(), nn.Flatten(), nn.Linear(40, 1))


class Own(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.second(self.first(x).relu())


def frame() -> pd.DataFrame:
    table = pd.DataFrame(X, columns=list("abcd"))
    table["b"] = np.where(table["b"] > 1, np.nan, table["b"])
    table["kind"] = pd.Series(["u", "v", None, "w"] * 10)
    table["old"] = table["a"] > 0
    return table


MODELS = {
    "automatic numbers": lambda: ntkit.NTKRegressor(effort="fast").fit(X, NUMBERS),
    "automatic classes": lambda: ntkit.NTKClassifier(effort="fast").fit(X, WORDS),
    "classes": lambda: ntkit.NTKClassifier(tune="auto").fit(X, WORDS),
    "two classes": lambda: ntkit.NTKClassifier(b_std=0.1, ridge=1e-3, class_weight="balanced").fit(X, X[:, 0] > 0),
    "numbers": lambda: ntkit.NTKRegressor(tune="auto", normalize_y=True).fit(X, NUMBERS),
    "several outputs": lambda: ntkit.NTKRegressor(ridge=1e-2, stopping_time=3.0).fit(X, np.stack([NUMBERS, X[:, 2]], 1)),
    "weights and noise": lambda: ntkit.NTKRegressor(ridge=1e-2).fit(X, NUMBERS, np.arange(1.0, 41.0), noise=0.1),
    "float32": lambda: ntkit.NTKClassifier(dtype="float32", ridge=1e-3).fit(X, WORDS),
    "network": lambda: ntkit.NTKRegressor(conv(), kernel="nngp", ridge=1e-3).fit(X, NUMBERS),
    "images": lambda: ntkit.NTKRegressor(nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1)),
                                         input_shape=(1, 2, 2), ridge=1e-3).fit(X, NUMBERS),
    "centres": lambda: ntkit.NTKRegressor(ridge=1e-3, n_centres=12).fit(X, NUMBERS),
}  # fmt: skip


def same(found, expected):
    """Compare numbers within rounding, and classes."""
    if found.dtype.kind == "f":
        rounding = 1e-5 if found.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_loaded_model_predicts_the_same(make, tmp_path: Path):
    """But for rounding: BLAS may add in another order where a file's arrays are aligned differently."""
    model = make()
    ntkit.save_model(model, tmp_path / "m.ntkit")
    again = ntkit.load_model(tmp_path / "m.ntkit")
    assert type(again) is type(model)
    same(again.predict(NEW), model.predict(NEW))
    if hasattr(model, "predict_proba"):
        same(again.predict_proba(NEW), model.predict_proba(NEW))
    elif model.n_centres is None:
        same(again.predict(NEW, return_std=True)[1], model.predict(NEW, return_std=True)[1])
        if model._automatic:
            same(again.predict(NEW, interval=0.8)[1], model.predict(NEW, interval=0.8)[1])
    assert again.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    again.fit(X, WORDS if hasattr(model, "classes_") else NUMBERS)  # it is an estimator like any other


@pytest.mark.parametrize("target", [NUMBERS, WORDS], ids=["numbers", "classes"])
def test_pipelines_with_categories_and_gaps(target, tmp_path: Path):
    last = ntkit.NTKRegressor(tune="auto", normalize_y=True) if target is NUMBERS else None
    model = ntkit.tabular_pipeline(last).fit(frame(), target)
    ntkit.save_model(model, tmp_path / "m.ntkit", notes={"target": "y"})
    saved = read_model(tmp_path / "m.ntkit")
    assert saved.notes == {"target": "y"}
    new = frame()[::-1].assign(kind="never seen")
    new.loc[3, "a"] = np.nan
    same(saved.estimator.predict(new), model.predict(new))


def test_files_from_before_the_automatic_model_load(tmp_path: Path):
    model = ntkit.NTKRegressor(ridge=1e-2, tune=None).fit(X, NUMBERS)
    expected = model.predict(NEW, return_std=True)
    del model.effort, model._many, model._calibration  # what such a file does not hold
    ntkit.save_model(model, tmp_path / "m.ntkit")
    for found, one in zip(ntkit.load_model(tmp_path / "m.ntkit").predict(NEW, return_std=True), expected, strict=True):
        same(found, one)


def test_the_same_model_gives_the_same_bytes(tmp_path: Path):
    for name in ("a", "b"):
        ntkit.save_model(MODELS["two classes"](), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_network_that_no_file_describes_is_asked_for(tmp_path: Path):
    model = ntkit.NTKRegressor(Own(), ridge=1e-3).fit(X, NUMBERS)
    path = tmp_path / "m.ntkit"
    ntkit.save_model(model, path)
    with pytest.raises(InputError, match=r"network is a Own, which its file does not hold. Pass the network"):
        ntkit.load_model(path)
    same(ntkit.load_model(path, module=Own(32)).predict(NEW), model.predict(NEW))
    with pytest.raises(InputError, match="kernel is not the one"):
        ntkit.load_model(path, module=mlp(4, 8, 1, activation=nn.Tanh))


class Executed:
    """Tells when it is unpickled."""

    happened = False

    def __reduce__(self):
        return (Executed.happen, ())

    @staticmethod
    def happen():
        Executed.happened = True


def rewritten(path: Path, change) -> Path:
    """Write a model file anew, its entries by name changed."""
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    change(entries)
    other = path.with_name("changed.ntkit")
    with zipfile.ZipFile(other, "w") as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return other


def content(**changes):
    def change(entries):
        entries["model.json"] = json.dumps({**json.loads(entries["model.json"]), **changes}).encode()

    return change


def objects(entries):
    buffer = io.BytesIO()
    np.save(buffer, np.array([Executed()], dtype=object), allow_pickle=True)
    entries["a0.npy"] = buffer.getvalue()


def short(entries):
    entries["a0.npy"] = entries["a0.npy"][:-8]


DAMAGE = {
    "no array": (lambda entries: entries.pop("a0.npy"), "lacks the array a0"),
    "no content": (lambda entries: entries.pop("model.json"), "not a model file of ntkit, or it is damaged"),
    "a pickle": (objects, "damaged: an array of objects"),
    "an array cut off": (short, "damaged"),
    "another format": (content(format=2), "has format 2, and this ntkit reads format 1"),
    "another ntkit": (content(versions={"ntkit": "99.0.0", "scikit-learn": "1.0"}), "was saved with ntkit 99.0.0"),
    "another class": (content(model={"class": "Popen", "state": {}}), "not a model that this version can read"),
    "no estimator": (content(model=[1]), "not a model that this version can read"),
}


@pytest.mark.parametrize(("change", "message"), DAMAGE.values(), ids=DAMAGE)
def test_files_that_are_no_model(change, message, tmp_path: Path):
    path = tmp_path / "m.ntkit"
    ntkit.save_model(ntkit.NTKClassifier(ridge=1e-3).fit(X, WORDS), path)
    ntkit.load_model(rewritten(path, lambda entries: None))
    with pytest.raises(InputError, match=message):
        ntkit.load_model(rewritten(path, change))
    assert not Executed.happened


def test_other_files(tmp_path: Path):
    with pytest.raises(InputError, match="there is no model file"):
        ntkit.load_model(tmp_path / "none")
    (tmp_path / "pickle").write_bytes(pickle.dumps(Executed()))
    with pytest.raises(InputError, match="not a model file of ntkit"):
        ntkit.load_model(tmp_path / "pickle")
    assert not Executed.happened
    with zipfile.ZipFile(tmp_path / "small", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("model.json", "{}")
    with pytest.raises(InputError, match="is compressed"):
        ntkit.load_model(tmp_path / "small")


def test_what_cannot_be_saved(tmp_path: Path):
    own = infinite_width(Own()).ntk + infinite_width(Own()).nngp
    cases = [
        (ntkit.NTKClassifier(), NotFittedError, "only a fitted estimator"),
        (LinearRegression().fit(X, NUMBERS), InputError, "must be an NTKClassifier or NTKRegressor"),
        (ntkit.NTKRegressor(kernel=own).fit(X, NUMBERS), InputError, "a model file holds"),
    ]
    for model, kind, message in cases:
        with pytest.raises(kind, match=message):
            ntkit.save_model(model, tmp_path / "m.ntkit")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path):
    model = ntkit.NTKClassifier(ridge=1e-3).fit(X, WORDS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            ntkit.save_model(model, tmp_path / "m.ntkit")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
