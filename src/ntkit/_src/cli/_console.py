"""The output of the commands, and options that several of them share."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ntkit.errors import InputError

from ._terminal import progress_bars

_MOST_ENTRIES = 2**40
"""Beyond this no memory holds one input."""

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Shape = Annotated[
    str | None, typer.Option(metavar="C,H,W", help="Shape of one input without the batch, such as 784 or 3,32,32.")
]
WStd = Annotated[float | None, typer.Option(help="Gain of the weights; default sqrt(2), or the module's own.")]
BStd = Annotated[float | None, typer.Option(help="Gain of the biases; default 0, or the module's own.")]
Kernel = Annotated[Literal["ntk", "nngp"], typer.Option(help="Which of the two kernels.")]


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
    print(json.dumps(_finite(result), indent=1, allow_nan=False) if as_json else text)


def _finite(value: Any) -> Any:
    """Return None for numbers that JSON cannot represent."""
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
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
    """Read ``3,32,32``.

    Examples
    --------
    >>> read_shape("3,32,32")
    (3, 32, 32)
    """
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


@contextmanager
def gram_progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar for the entries of a Gram matrix, on the standard error stream."""
    with progress_bars() as bars:
        yield partial(bars, "entries")
