"""``ntkit attribute``: which training rows caused a prediction of a trained network."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn

from ntkit._src.diagnostics import attribute as compute_attribution
from ntkit.errors import InputError

from ._console import Json, Shape, command, emit, read_shape, table_text
from ._data import DType, inputs_and_targets, read_inputs
from ._modules import Module, read_module


@command("ntkit attribute my_package.nets:trained train.csv test.csv --target y --weights state.pt --top 3")
def attribute(
    module: Module,
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Inputs and targets, numbers.")],
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Inputs whose predictions to attribute.")],
    target: Annotated[str, typer.Option(help="Name of the column of targets; whole numbers are classes.")],
    weights: Annotated[
        Path | None, typer.Option(help="A state dictionary of the trained network (torch.save).")
    ] = None,
    shape: Shape = None,
    ridge: Annotated[float, typer.Option(help="Relative to the mean of the kernel's diagonal.")] = 1.0,
    top: Annotated[int, typer.Option(min=1, help="How many training rows to show for each test row.")] = 5,
    json: Json = False,
) -> None:
    """Show the training rows behind each prediction.

    For each test row, the training rows that moved it most, with the output minus what it would be without that row.
    """
    network, of_one = read_module(module), read_shape(shape)
    if weights is not None:
        _load(network, weights)
    elif module.endswith(".toml"):
        raise InputError(
            f"{module} describes a network without its trained weights: write --weights, a state dictionary."
        )
    dtype = next((one.dtype for one in network.parameters()), torch.float32)
    kind: DType = "float64" if dtype == torch.float64 else "float32"
    (x, names), values = inputs_and_targets(train, target, of_one, kind)
    classes = values.dtype.kind in "iub"
    y = torch.from_numpy(np.array(values, np.int64 if classes else np.float64))
    y = y if classes else y.to(dtype)
    x_test = read_inputs(test, of_one, kind, without=target, names=names).x
    found = compute_attribution(network, x, y, x_test, ridge=ridge)
    if found.scores.ndim != 2:
        raise InputError("the network must have one output for a regression, or one per class.")
    scores, rows = found.top(min(top, len(x)))
    result: list[dict[str, Any]] = [
        {"row": number, "output": float(found.outputs[number]),
         "training_rows": rows[number].tolist(), "scores": scores[number].tolist()}
        for number in range(len(x_test))
    ]  # fmt: skip
    lines = [
        [str(one["row"]), f"{one['output']:.4g}",
         ", ".join(f"{row} ({score:+.3g})" for row, score in zip(one["training_rows"], one["scores"], strict=True))]
        for one in result
    ]  # fmt: skip
    text = table_text(["test row", "output", "training rows, with what each added"], lines)
    emit({"method": found.method, "predictions": result}, json, text)


def _load(network: nn.Module, path: Path) -> None:
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:  # its text recommends to execute what is in the file
        raise InputError(
            f"--weights must be a state dictionary of the network, written by torch.save. {path} is damaged or holds other "
            "Python objects: write torch.save(network.state_dict(), path)."
        ) from error
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, EOFError) as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(f"--weights must be a state dictionary of the network. Cannot use {path}: {text}") from error
