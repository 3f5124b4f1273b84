"""The program: its commands, and errors as one line with an exit status."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ntkit._src.native import build_info
from ntkit.errors import NtkitError, UnsupportedLayerError

from . import _attribute, _doctor, _evaluate, _explain, _fetch, _fit, _gram, _posterior, _predict, _solve, _studies
from ._terminal import one_line

__all__ = ["app"]


_OUT_OF_MEMORY = re.compile(r"tried to allocate [\d.]+ \w+", re.IGNORECASE)
"""What torch says on a processor and on a graphics card."""


class Commands(TyperGroup):
    """The group of commands, which turns expected errors into one line on the standard error stream."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command.

        Raises
        ------
        typer.Exit
            With status 2 for an error of the request or the file system, 130 for an interruption.
        """
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
            print(f"ntkit: error: the module has no infinite-width limit because of {places}: ntkit doctor says what to do.",
                  file=sys.stderr)  # fmt: skip
            raise typer.Exit(2) from error
        except (NtkitError, OSError, MemoryError, ImportError) as error:
            print(f"ntkit: error: {one_line(error)}", file=sys.stderr)
            raise typer.Exit(2) from error
        except RuntimeError as error:
            found = _OUT_OF_MEMORY.search(str(error))
            if found is None:
                raise
            print(f"ntkit: error: not enough memory: {found[0]}.", file=sys.stderr)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=Commands,
    help="Neural tangent kernels of PyTorch modules: models from tables, kernels, and the papers' experiments.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for part in (
    _fit, _predict, _evaluate, _explain, _doctor, _gram, _solve, _posterior, _attribute, _studies, _fetch,
):  # fmt: skip
    part.add_to(app)


def _version(asked: bool) -> None:
    if asked:
        print(f"ntkit {build_info().version}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural tangent kernels of PyTorch modules: models from tables, kernels, and the papers' experiments."""


def _show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning without the line of code that issued it."""
    print(f"ntkit: {' '.join(str(message).split())}", file=sys.stderr)
