"""``ntkit explain``, ``doctor`` and ``attribute``: what one network computes, has no limit for, and learnt from which rows."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer
from torch import nn

from ntkit._src.kernels import infinite_width
from ntkit._src.trace import adapt
from ntkit.errors import InputError, Problem, UnsupportedLayerError

from ._console import Json, Ridge, Shape, Test, Train, command, emit, read_shape, table_text
from ._modules import Module, read_module


@command("ntkit explain my_package.nets:resnet --shape 3,32,32", "ntkit explain net.toml --shape 784")
def explain(module: Module, shape: Shape = None, json: Json = False) -> None:
    """Show how the kernels of a network are computed.

    Lists each operation, what is kept of its covariance, at what cost, and which engine runs it.
    """
    of_one = read_shape(shape)
    if of_one is None:
        raise InputError("--shape must be the shape of one input, such as 784 or 3,32,32.")
    found = infinite_width(read_module(module)).explain(of_one)
    rows = [asdict(row) for row in found.rows]
    emit({"module": module, "shape": list(of_one), "operations": rows}, json, str(found))


@command("ntkit doctor torchvision.models:resnet18 --shape 3,64,64 --norm layer")
def doctor(
    module: Module,
    shape: Shape = None,
    norm: Annotated[Literal["none", "layer", "group"], typer.Option(help="What replaces batch norm.")] = "none",
    json: Json = False,
) -> None:
    """Say what keeps a network from having a limit.

    Shows each such layer with the reason, and the nearest network that has an infinite-width limit. The exit status is 1
    if a place without a limit remains.
    """
    network, of_one = read_module(module), read_shape(shape)
    refused: tuple[Problem, ...] = ()
    try:
        limit = infinite_width(network)
        if of_one is not None:
            limit.explain(of_one)
        elif not limit.was_read:
            raise InputError(
                f"--shape must be the shape of one input, such as 784 or 3,32,32: the inputs of {module} cannot be guessed from "
                "its layers."
            )
    except UnsupportedLayerError as error:
        refused = error.problems
    if not refused:
        emit({"module": module, "has_limit": True, "problems": [], "changes": [], "left": []}, json,
             f"{module} has an infinite-width limit as it is.")  # fmt: skip
        return
    adapted = adapt(network, of_one, norm=norm)
    lines = [
        f"{module}: {len(refused)} without a limit",
        *(f"  {one}" for one in refused),
        "",
        f"ntkit.adapt: {adapted}",
    ]
    if not adapted.obstacles:
        lines += ["", str(adapted.module)]
    result = {
        "module": module,
        "has_limit": False,
        "problems": [asdict(one) for one in refused],
        "changes": [asdict(one) for one in adapted.changes],
        "left": [asdict(one) for one in adapted.obstacles],
        "adapted": None if adapted.obstacles else str(adapted.module),
    }
    emit(result, json, "\n".join(lines))
    if adapted.obstacles:
        raise typer.Exit(1)


@command("ntkit attribute my_package.nets:trained train.csv test.csv --target y --weights state.pt --top 3")
def attribute(
    module: Module,
    train: Train,
    test: Test,
    target: Annotated[str, typer.Option(help="Name of the column of targets; whole numbers are classes.")],
    weights: Annotated[
        Path | None, typer.Option(help="A state dictionary of the trained network (torch.save).")
    ] = None,
    shape: Shape = None,
    ridge: Ridge = 1.0,
    top: Annotated[int, typer.Option(min=1, help="How many training rows to show for each test row.")] = 5,
    json: Json = False,
) -> None:
    """Show the training rows behind each prediction.

    For each test row, the training rows that moved it most, with the output minus what it would be without that row.
    """
    from ntkit._src.diagnostics import attribute as compute_attribution

    from ._data import inputs_and_targets, read_inputs

    network, of_one = read_module(module), read_shape(shape)
    if weights is not None:
        _load(network, weights)
    elif module.endswith(".toml"):
        raise InputError(
            f"{module} describes a network without its trained weights: write --weights, a state dictionary."
        )
    dtype = next((one.dtype for one in network.parameters()), torch.float32)
    kind: Literal["float32", "float64"] = "float64" if dtype == torch.float64 else "float32"
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
