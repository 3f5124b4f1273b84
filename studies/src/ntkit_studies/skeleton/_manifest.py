"""The provenance of results: versions, machine, seeds, settings, data and durations, stored with every result."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from ntkit.datasets import load_digits
from ntkit.errors import InputError

from .._uci_tables import load_uci
from ..plots import Table

__all__ = ["Data", "Embedded", "Machine", "Manifest", "data_of", "machine_table", "this_machine", "versions"]

_PACKAGES = ("ntkit", "torch", "numpy", "scipy", "scikit-learn")

Embedded = str
"""What an experiment uses without a file: ``"digits"``, ``"tables"``, or ``""`` for points it draws itself."""


@dataclass(frozen=True)
class Data:
    """The data of a run.

    Attributes
    ----------
    name
        Name of the file, or of what the package embeds.
    sha256
        Hash of its bytes.
    embedded
        Whether it came with the package instead of from a file.
    """

    name: str
    sha256: str
    embedded: bool


@dataclass(frozen=True)
class Machine:
    """Where a run took place."""

    system: str
    processor: str
    cores: int
    threads: int


@dataclass(frozen=True)
class Manifest:
    """The provenance of results.

    Attributes
    ----------
    experiment
        Name of the experiment.
    versions
        Versions of Python and of the packages used.
    machine
        Where it ran.
    started
        When the last run started, in UTC.
    wall_seconds
        Duration of the last run, which computed only what earlier runs had not.
    cell_seconds
        Duration of each cell, in the order of the results, whichever run computed it.
    """

    experiment: str
    versions: dict[str, str]
    machine: Machine
    started: str
    wall_seconds: float
    cell_seconds: tuple[float, ...]


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def this_machine() -> Machine:
    """Describe this machine."""
    return Machine(platform.platform(), _processor(), os.cpu_count() or 1, torch.get_num_threads())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def data_of(path: Path | None, embedded: Embedded) -> Data | None:
    """Describe the data of a run by its hash; None if an experiment draws its own points.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    if path is not None:
        try:
            return Data(path.name, _hash_of(path), False)
        except OSError as error:
            raise InputError(f"--data must be an .npz file. Cannot read {path}: {error.strerror}.") from error
    digest = hashlib.sha256()
    if embedded == "digits":
        digits = load_digits()
        digest.update(digits.images.numpy().tobytes() + digits.labels.numpy().tobytes())
    elif embedded == "tables":
        for table in load_uci():
            digest.update(table.X.tobytes() + table.y.tobytes())
            for index in (table.train, table.validation, *(part for fold in table.folds for part in fold)):
                digest.update(index.tobytes())
    else:
        return None
    return Data(f"scikit-learn's {embedded}", digest.hexdigest(), True)


def _hash_of(path: Path) -> str:
    """Hash a file, or the names and hashes of all files of a folder."""
    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.is_file())
        lines = [f"{one.relative_to(path).as_posix()} {_hash_of(one)}" for one in files]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def machine_table(manifest: Manifest, seed: int, data: Data | None, settings: Sequence[tuple[str, str]]) -> Table:
    """Show a manifest."""
    machine = manifest.machine
    rows = [
        *([name, value] for name, value in settings),
        ["seed", str(seed)],
        ["data", "–" if data is None else f"{data.name}, sha256 {data.sha256[:16]}"],
        *([name, value] for name, value in manifest.versions.items()),
        ["machine", f"{machine.processor}, {machine.cores} cores, {machine.threads} threads, {machine.system}"],
        ["seconds", f"{sum(manifest.cell_seconds):.1f} in the cells, {manifest.wall_seconds:.1f} in the last run"],
    ]
    return Table(["", ""], rows, "Settings, versions and machine")
