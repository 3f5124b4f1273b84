"""``ntkit predict``: predictions from a model file and a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from sklearn.pipeline import Pipeline

from ntkit._src.estimators.saved import read_model
from ntkit.errors import InputError, NtkitError

from ._console import Json, TableOut, check_out, command, note, write_table
from ._data import Data, read_table
from ._modules import read_module
from ._tables import check_range


@command("ntkit predict houses.ntkit new.csv", "ntkit predict houses.ntkit new.csv --std --out predictions.csv")
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that ntkit fit wrote.")],
    data: Data,
    out: TableOut = None,
    std: Annotated[bool, typer.Option("--std", help="Standard deviations too, for a regression.")] = False,
    module: Annotated[str | None, typer.Option(help="The network, if the file does not hold it.")] = None,
    json: Json = False,
) -> None:
    """Predict the rows of a table with a fitted model.

    Prints the value of each row, or its class with the probability of every class. Loading a model file executes nothing in it.
    """
    if out is not None:
        check_out(out, model, data)
    saved = read_model(model, module=None if module is None else read_module(module))
    kinds = saved.notes.get("columns")
    if not isinstance(kinds, dict) or not kinds:
        raise InputError(f"{model} does not say which columns it was fitted with: ntkit fit writes files that do.")
    words = [name for name, kind in kinds.items() if kind == "category"]
    table = _columns(read_table(data, words), kinds, data)
    check_range(table, data)
    features: Any = table
    if not isinstance(saved.estimator, Pipeline):
        features = table.to_numpy(np.float64, na_value=np.nan)
        if np.isnan(features).any():
            raise InputError(f"{data} has gaps, and the model, which was fitted with --shape, takes none.")
    try:
        if isinstance(saved.estimator, Pipeline):
            _note_unknown(saved.estimator, table[words], data)
        result = _predictions(saved.estimator, features, saved.notes.get("task") == "classification", std)
    except NtkitError:
        raise
    except Exception as error:  # a file that was changed may restore any state
        raise InputError(f"{model} cannot predict: {error!r:.200}. It may be damaged: fit it again.") from error
    write_table(result, out, json)


def _note_unknown(estimator: Pipeline, table: pd.DataFrame, path: Path) -> None:
    """Tell of categories none of which is known, such as dates written in another way than at the fit."""
    if not len(table.columns):
        return
    encoder = estimator[0].named_transformers_["categories"][-1]
    for name, known in zip(table.columns, encoder.categories_, strict=True):
        values = table[name].dropna().astype(object).astype(str)
        if len(values) and not values.isin(known).any():
            note(f"no value of the column {name!r} of {path} was there at the fit, such as {values.iloc[0]!r}.")


def _predictions(estimator: Any, features: Any, classes: bool, std: bool) -> pd.DataFrame:
    if not classes:
        if std:
            mean, deviation = estimator.predict(features, return_std=True)
            return pd.DataFrame({"prediction": mean, "std": deviation})
        return pd.DataFrame({"prediction": estimator.predict(features)})
    if std:
        raise InputError("--std is for a regression. The model is a classification, which reports probabilities.")
    probabilities = estimator.predict_proba(features)
    shown = {f"probability of {name}": probabilities[:, number] for number, name in enumerate(estimator.classes_)}
    return pd.DataFrame({"prediction": estimator.predict(features), **shown})


def _columns(table: pd.DataFrame, kinds: dict[str, str], path: Path) -> pd.DataFrame:
    """Return the columns of the model in its order, or raise an error for columns that are missing or of another kind."""
    missing = [name for name in kinds if name not in table.columns]
    if missing:
        raise InputError(f"{path} lacks {', '.join(map(repr, missing))}, which the model was fitted with.")
    chosen = table[list(kinds)].copy()
    for name, kind in kinds.items():
        if kind == "number" and not pd.api.types.is_numeric_dtype(chosen[name].dtype):
            try:
                chosen[name] = chosen[name].astype("float64")
            except (ValueError, TypeError):
                shown = next((one for one in chosen[name] if isinstance(one, str)), None)
                raise InputError(
                    f"the column {name!r} of {path} must hold numbers, as it did at the fit. Got {shown!r}."
                ) from None
    return chosen
