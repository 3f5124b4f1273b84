"""Networks named on the command line: ``package.module:attribute``, or a TOML file with a list of layers."""

from __future__ import annotations

import importlib
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from torch import nn

from ntkit._src.estimators.saved import build_described
from ntkit.errors import InputError

Module = Annotated[
    str, typer.Argument(metavar="MODULE", help="package.module:attribute, or a TOML file that lists the layers.")
]


def read_module(name: str) -> nn.Module:
    """Return the network of a TOML file, or of ``package.module:attribute``: a module, or what returns one when called."""
    # The current folder is searched too. A TOML file has a table ``[[layers]]`` for each layer, with ``layer = "Linear"`` and
    # the layer's arguments, such as ``in_features = 784``.
    if name.endswith(".toml"):
        return _from_toml(Path(name))
    place, colon, attribute = name.partition(":")
    if not colon or not place or not attribute:
        raise InputError(f"a module must be package.module:attribute or a TOML file. Got {name!r}.")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with redirect_stdout(sys.stderr):  # what the user's code prints is no result
            found = importlib.import_module(place)
            for part in attribute.split("."):
                found = getattr(found, part)
            made = found if isinstance(found, nn.Module) else found()  # type: ignore[operator]
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise InputError(f"cannot import {name}: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise InputError(f"{name} must be a torch.nn.Module, or return one when called. Got {type(made).__name__}.")
    return made


def _from_toml(path: Path) -> nn.Module:
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if set(content) != {"layers"}:
        raise InputError(f"{path} must have [[layers]] and nothing else. Got {', '.join(content) or 'nothing'}.")
    return build_described(content["layers"], str(path))
