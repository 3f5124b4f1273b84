"""The program: its commands, each imported when it runs, and errors as one line with an exit status."""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ntkit.__main__ import print_version
from ntkit.errors import MissingDependencyError, NtkitError, UnsupportedLayerError

from ._terminal import one_line, stopping_at_once

COMMANDS = {
    "fit": "Fit a model to a table, with nothing to tune.",
    "predict": "Predict the rows of a table with a fitted model.",
    "evaluate": "Cross-validate against RBF SVM, forest and boosting.",
    "explain": "Show how the kernels of a network are computed.",
    "doctor": "Say what keeps a network from having a limit.",
    "gram": "Compute and store the kernel matrix of a network.",
    "solve": "Solve (K + ridge tr(K)/n) a = y; predictions are K(x, X) a.",
    "posterior": "Predict by infinitely wide networks, with spread.",
    "attribute": "Show the training rows behind each prediction.",
    "play": "Open a page where infinitely wide networks learn points.",
    "list": "List the papers' tables and figures.",
    "run": "Run one of them and compare the paper's numbers with ours.",
    "report": "Rewrite the pages of stored results.",
    "fetch": "Fetch an image set for ntkit run --data.",
}
"""The commands and the first lines of their help, which ``ntkit --help`` shows without importing them."""

_FILES = {
    **dict.fromkeys(("explain", "doctor", "attribute"), "_networks"),
    **dict.fromkeys(("gram", "solve", "posterior"), "_kernels"),
    **dict.fromkeys(("list", "run", "report"), "_studies"),
}
"""The files of commands that have none of their own name."""

_OUT_OF_MEMORY = re.compile(r"tried to allocate [\d.]+ \w+", re.IGNORECASE)
"""What torch says on a processor and on a graphics card."""


def load(name: str) -> Any:
    """Import a command."""
    try:
        with stopping_at_once():
            file = import_module(f"{__package__}.{_FILES.get(name, f'_{name}')}")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"ntkit {name} needs {error.name}: pip install 'ntkit[cli]'") from error
    return getattr(file, "list_studies" if name == "list" else name)


class Commands(TyperGroup):
    """The group of commands, which turns expected errors into one line on the standard error stream."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that was asked for."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if name is None else load(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command; the exit status is 2 for an error of the request or the file system, 130 for an interruption."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show
                return super().invoke(ctx)
        except KeyboardInterrupt:
            print("ntkit: stopped", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of the output has stopped
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except UnsupportedLayerError as error:
            places = ", ".join(f"{one.path} ({one.what})" for one in error.problems)
            _fail(f"the module has no infinite-width limit because of {places}: ntkit doctor says what to do.", error)
        except (NtkitError, OSError, MemoryError, ImportError) as error:
            _fail(one_line(error), error)
        except RuntimeError as error:
            found = _OUT_OF_MEMORY.search(str(error))
            if found is None:
                raise
            _fail(f"not enough memory: {found[0]}.", error)


def _fail(text: str, error: Exception) -> None:
    print(f"ntkit: error: {text}", file=sys.stderr)
    raise typer.Exit(2) from error


def _show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning without the line of code that issued it."""
    print(f"ntkit: {' '.join(str(message).split())}", file=sys.stderr)


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def _version(asked: bool) -> None:
    if asked:
        print_version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural tangent kernels of PyTorch modules: models from tables, kernels, and the papers' experiments."""
