"""The form of commands, the options they share, their output, and the cluster they compute on."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ntkit.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd

_MOST_ENTRIES = 2**40
"""Beyond this no memory holds one input."""


def command(*examples: str, name: str | None = None, **settings: Any) -> Callable[[Callable[..., None]], Any]:
    """Make a function a command of the program, whose help ends with the examples."""
    text = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)

    def make(function: Callable[..., None]) -> Any:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, epilog=text, **settings)(function)
        return typer.main.get_command(app)

    return make


def note(text: str) -> None:
    """Tell the user something other than the result."""
    print(text, file=sys.stderr)


def emit(result: Mapping[str, Any], as_json: bool, text: str) -> None:
    """Print the result: JSON for programs, text for people."""
    print(json.dumps(_plain(result), indent=1, allow_nan=False) if as_json else text)


def _plain(value: Any) -> Any:
    """Return what JSON can represent: None for numbers that are not finite, lists for tuples, names for enums."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table; the first column to the left, the others to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def read_shape(text: str | None) -> tuple[int, ...] | None:
    """Read ``3,32,32``."""
    if text is None:
        return None
    try:
        shape = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1 or math.prod(shape) > _MOST_ENTRIES:
        raise InputError(f"--shape must be positive whole numbers such as 784 or 3,32,32. Got {text!r}.")
    return shape


def check_out(path: Path, *inputs: Path) -> Path:
    """Refuse an output path that cannot be written to or is one of the inputs, before anything is computed."""
    if path.is_dir():
        raise InputError(f"--out must be a file. {path} is a folder.")
    if path.exists() and not path.is_file():  # a device or a pipe would be replaced by a file
        raise InputError(f"--out must be a file. {path} is a device or a pipe.")
    if any(path.exists() and one.exists() and path.samefile(one) for one in inputs):
        raise InputError(f"--out must not be a file that is read. Got {path} for both: name another.")
    if not path.parent.is_dir():
        raise InputError(f"--out must be in a folder that exists. {path.parent} does not.")
    probe = path.with_name(f".{path.name}.writable")
    probe.write_bytes(b"")
    probe.unlink()
    return path


def write_table(table: pd.DataFrame, out: Path | None, as_json: bool) -> None:
    """Write a table as CSV or JSON to a file, or print it where ``out`` is None."""
    if as_json:
        text = table.to_json(orient="records", double_precision=15) + "\n"
    else:
        text = table.to_csv(index=False, lineterminator="\n")
    if out is None:
        print(text, end="")
        return
    from ntkit._src.gram import write_atomically

    write_atomically(out, text.encode())
    note(f"{out}: {len(table):,} predictions")


@contextmanager
def connected(scheduler: str | None) -> Iterator[Any]:
    """Connect to a Dask cluster; None and ``"local"`` stay what they are."""
    if scheduler is None or scheduler == "local":
        yield scheduler
        return
    if not re.fullmatch(r"\w+://.+:\d+", scheduler):  # a client without an address takes 20 seconds to give up
        raise InputError(f"--scheduler must be local or an address such as tcp://host:8786. Got {scheduler!r}.")
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependencyError("--scheduler needs Dask: pip install 'ntkit[scale]'") from error
    try:
        # Not the default of this process: Dask would take one that never answered for arrays of its own.
        client = Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"--scheduler must be a running Dask scheduler such as tcp://host:8786: {error}") from error
    with client, client.as_current():
        yield client


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
