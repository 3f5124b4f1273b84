"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Shape = Annotated[
    str | None, typer.Option(metavar="C,H,W", help="Shape of one input without the batch, such as 784 or 3,32,32.")
]
WStd = Annotated[float | None, typer.Option(help="Gain of the weights; default sqrt(2), or the module's own.")]
BStd = Annotated[float | None, typer.Option(help="Gain of the biases; default 0, or the module's own.")]
Ridge = Annotated[float, typer.Option(help="Relative to the mean of the kernel's diagonal.")]
Train = Annotated[Path, typer.Argument(metavar="TRAIN", help="Inputs and targets, numbers.")]
Test = Annotated[Path, typer.Argument(metavar="TEST", help="Inputs whose outputs are wanted.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
TableOut = Annotated[Path | None, typer.Option(help="A CSV file to write; default the standard output.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="A Dask cluster that computes kernel matrices, tcp://host:port; or local, processes of this machine."
    ),
]
Kernel = Annotated[Literal["ntk", "nngp"], typer.Option(help="Which of the two kernels.")]
