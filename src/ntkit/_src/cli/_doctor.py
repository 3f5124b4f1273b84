"""``ntkit doctor``: why a network has no infinite-width limit, and the nearest one that has one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from ntkit._src.kernels import infinite_width
from ntkit._src.trace import adapt
from ntkit.errors import InputError, Problem, UnsupportedLayerError

from ._console import Json, Shape, command, emit, read_shape
from ._modules import Module, read_module


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
