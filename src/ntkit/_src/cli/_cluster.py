"""``--scheduler``: the Dask cluster on which a command computes kernel matrices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ntkit.errors import InputError, MissingDependencyError

Scheduler = Annotated[
    str | None,
    typer.Option(
        help="A Dask cluster that computes kernel matrices, tcp://host:port; or local, processes of this machine."
    ),
]


@contextmanager
def connected(scheduler: str | None) -> Iterator[Any]:
    """Connect to a Dask cluster; None and ``"local"`` stay what they are.

    Raises
    ------
    InputError
        If nothing answers there.
    """
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
