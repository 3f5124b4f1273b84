"""``ntkit posterior``: predictions of an ensemble of infinitely wide networks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
import typer

from ntkit._src.dynamics import posterior as compute_posterior
from ntkit._src.gram import ClusterKernel, write_atomically
from ntkit._src.kernels import infinite_width

from ._cluster import Scheduler, connected
from ._console import BStd, Json, Shape, WStd, check_out, command, note, read_shape
from ._data import inputs_and_targets, read_inputs
from ._modules import Module, read_module


class _Placed(NamedTuple):
    """Both kernels of a network, computed on a cluster."""

    ntk: ClusterKernel
    nngp: ClusterKernel


@command("ntkit posterior net.toml train.csv test.csv --target y --mode nngp --ridge 1e-2")
def posterior(
    module: Module,
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Inputs and targets, numbers.")],
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Inputs.")],
    target: Annotated[str, typer.Option(help="Name of the column of targets.")],
    out: Annotated[Path | None, typer.Option(help="A CSV file to write; default the standard output.")] = None,
    mode: Annotated[
        Literal["ntk", "nngp", "last_layer"], typer.Option(help="What is trained; nngp: Bayesian.")
    ] = "ntk",
    time: Annotated[float, typer.Option(help="Training time of gradient flow.")] = math.inf,
    ridge: Annotated[float, typer.Option(help="Relative to the mean of the diagonal.")] = 0.0,
    shape: Shape = None,
    w_std: WStd = None,
    b_std: BStd = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Predict by infinitely wide networks, with spread.

    Prints, for each test row, the mean and the standard deviation of trained networks over their random initialisation.
    """
    if out is not None:
        check_out(out, train, test)
    of_one = read_shape(shape)
    limit = infinite_width(read_module(module), w_std=w_std, b_std=b_std)
    (x, names), targets = inputs_and_targets(train, target, of_one, "float64")
    y = torch.from_numpy(np.array(targets, np.float64))
    x_test = read_inputs(test, of_one, "float64", without=target, names=names).x
    with connected(scheduler) as client:
        kernels = limit if client is None else _Placed(*(ClusterKernel(one, client) for one in (limit.ntk, limit.nngp)))
        found = compute_posterior(kernels, x, y, x_test, mode=mode, t=time, ridge=ridge, covariance="diagonal")
    table = pd.DataFrame({"mean": found.mean.numpy(), "std": found.variance.sqrt().numpy()})
    note(found.status)
    text = (
        table.to_json(orient="records", double_precision=15) + "\n"
        if json
        else table.to_csv(index=False, lineterminator="\n")
    )
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode())
