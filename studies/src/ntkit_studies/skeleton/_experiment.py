"""The common form of all experiments: settings, cells, how a cell is computed, and how results become a report."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar, get_type_hints
from zipfile import is_zipfile

from ntkit.errors import InputError, NtkitWarning

from ._code_fingerprint import code_fingerprint
from ._estimate import Estimate
from ._files import check_folder, locked
from ._manifest import Data, Embedded, Manifest, data_of, this_machine, versions
from ._records import canonical, encode
from ._report import Report
from ._run import Progress, Results, Run, Size, read_results, share_nothing, silent, write_results
from ._store import CellStore, Stored
from ._threads import one_thread_per_operation

__all__ = ["Experiment", "experiment_of"]

S = TypeVar("S")
C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")

_CELLS = "cells.jsonl"
_FUNCTIONS = ("sizes", "cells", "prepare", "compute", "report", "estimate")


@dataclass(frozen=True)
class Experiment(Generic[S, C, P, R]):
    """An experiment: S its settings, C a cell, P what cells share, R the result of a cell, all frozen dataclasses.

    Attributes
    ----------
    name
        ``ntkit run NAME`` runs it.
    title
        One line that says what is measured.
    reproduces
        Paper and table or figure, such as ``"Arora et al. 2019, Table 1"``; ``"–"`` if it is ours.
    sizes
        Returns the settings of a size, for data from a file (True) or for those that the package embeds.
    cells
        Returns what to compute, in order. What is computed together is one cell.
    prepare
        Computes what all cells share; not called if nothing is left to compute.
    compute
        Computes one cell. Its annotations say what cells and results are. The result must depend only on the settings, the
        seed, the data and the cell.
    report
        Turns results into tables and figures.
    first
        Returns the cells that a first report needs, which is shown while the others are computed; None: there is none.
        ``report`` takes results of these alone.
    embedded
        The data used without a file.
    files
        What ``--data`` takes; empty if the experiment reads no file.
    selects
        Names of settings that only determine which cells exist: a later run may change them and keep its results.
    parallel
        Whether cells are distributed to Python threads, each with one thread per operation.
    output
        Where the command line writes by default: a folder, or an ``.html`` file for only the report.
    estimate
        Tells seconds and memory of a run before it starts; None if runs of every size are short and small.
    """

    name: str
    title: str
    reproduces: str
    sizes: Callable[[Size, bool], S]
    cells: Callable[[Run[S]], Sequence[C]]
    prepare: Callable[[Run[S]], P]
    compute: Callable[[P, C], R]
    report: Callable[[Results[S, C, R]], Report]
    embedded: Embedded = ""
    files: str = ""
    selects: tuple[str, ...] = ()
    parallel: bool = False
    output: str = ""
    estimate: Callable[[Run[S]], Estimate] | None = None
    first: Callable[[Run[S]], Sequence[C]] | None = None

    @cached_property
    def kinds(self) -> tuple[Any, Any]:
        """Return the classes of cells and of results, or unions of classes."""
        _, cell, result = get_type_hints(self.compute).values()
        return cell, result

    def run(
        self,
        settings: S | None = None,
        seed: int = 0,
        data: Path | None = None,
        folder: Path | None = None,
        progress: Progress | None = None,
        workers: int | None = None,
        preview: Callable[[Results[S, C, R]], None] | None = None,
    ) -> Results[S, C, R]:
        """Compute what is left to compute and return all results.

        Parameters
        ----------
        settings
            The settings; None: those of the default size.
        seed
            Seed of everything random.
        data
            A file of data; None uses what the package embeds.
        folder
            Where results are stored as they arrive, and from which those of earlier runs with the same settings, seed, data,
            code and versions are reused; None stores nothing.
        progress
            Called as the computation proceeds.
        workers
            Cells computed at a time, if the experiment is parallel; None: the number of cores.
        preview
            Called once with the results of the first cells, while others are computed.
        """
        started, start = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
        settings = self.sizes("default", data is not None) if settings is None else settings
        source = data_of(data, self.embedded)
        if data is not None and ".npz" in self.files and data.is_file() and not is_zipfile(data):
            raise InputError(f"--data must be {self.files}. {data} is no such file, or it is damaged.")
        with _place(folder) as place:
            run = Run(settings, seed, data, place, progress or silent)
            key = self._key(run, source)
            store: CellStore[C, R] = CellStore(place / _CELLS, *self.kinds)
            if store.unreadable:
                text = f"{store.unreadable} lines of {place / _CELLS} cannot be read: their results are computed again."
                warnings.warn(text, NtkitWarning, stacklevel=2)

            def results_of(found: Mapping[C, Stored[R]]) -> Results[S, C, R]:
                seconds = tuple(one.seconds for one in found.values())
                wall = time.perf_counter() - start
                manifest = Manifest(self.name, versions(), this_machine(), started, wall, seconds)
                values = {cell: one.result for cell, one in found.items()}
                return Results(settings, seed, source, values, manifest)

            shown = None if preview is None else lambda found: preview(results_of(found))
            results = results_of(self._fill(run, key, store, workers, shown))
            if folder is not None:
                write_results(results, place)
                return self.read(place)  # with the digits that are stored, so that every later report is the same
            return results

    def read(self, folder: Path) -> Results[S, C, R]:
        """Read the results of an earlier run."""
        return read_results(folder, type(self.sizes("default", False)), *self.kinds)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the experiment from the command line and return the exit status.

        Parameters
        ----------
        arguments
            Arguments of the command line; None: the program's own.
        """
        from ._command_line import main

        return main(self, arguments)

    def _key(self, run: Run[S], source: Data | None) -> str:
        """Return a text for everything except the cell that its result depends on."""
        settings = {name: one for name, one in encode(run.settings).items() if name not in self.selects}
        code = code_fingerprint(self.prepare, self.compute)
        parts = [self.name, settings, run.seed, "" if source is None else source.sha256, versions(), code]
        return hashlib.sha256(canonical(parts).encode()).hexdigest()[:16]

    def _fill(
        self,
        run: Run[S],
        key: str,
        store: CellStore[C, R],
        workers: int | None,
        preview: Callable[[Mapping[C, Stored[R]]], None] | None,
    ) -> dict[C, Stored[R]]:
        cells = list(dict.fromkeys(self.cells(run)))
        known = {cell: store.get(key, cell) for cell in cells}
        left = [cell for cell, stored in known.items() if stored is None]
        done = len(cells) - len(left)
        first = [] if preview is None or self.first is None else list(self.first(run))
        waiting = {cell for cell in first if known[cell] is None}
        run.progress("cells", done, len(cells))
        if left:
            prepared = self.prepare(run)
            with self._computed(prepared, left, workers) as computed:
                for cell, stored in computed:
                    store.add(key, cell, stored)
                    known[cell] = stored
                    done += 1
                    run.progress("cells", done, len(cells))
                    if preview is not None and waiting and not (waiting := waiting - {cell}) and done < len(cells):
                        preview({one: result for one in first if (result := known[one]) is not None})
        return {cell: stored for cell, stored in known.items() if stored is not None}

    @contextmanager
    def _computed(
        self, prepared: P, cells: Sequence[C], workers: int | None
    ) -> Iterator[Iterator[tuple[C, Stored[R]]]]:
        """Provide cells with their results, as they arrive."""

        def job(cell: C) -> tuple[C, Stored[R]]:
            start = time.perf_counter()
            try:
                result = self.compute(prepared, cell)
            except Exception as error:
                error.add_note(f"in {cell}")
                raise
            return cell, Stored(result, time.perf_counter() - start)

        if not self.parallel:
            yield map(job, cells)
            return
        # torch, NumPy, scikit-learn and the kernels compute outside the interpreter's lock, so threads are enough.
        with one_thread_per_operation(), ThreadPoolExecutor(workers or os.cpu_count()) as pool:
            jobs = [pool.submit(job, cell) for cell in cells]
            try:
                yield (future.result() for future in as_completed(jobs))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
    else:
        check_folder(folder)
        with locked(folder / _CELLS):
            yield folder


def experiment_of(
    module: Mapping[str, Any], name: str, title: str, reproduces: str, **more: Any
) -> Experiment[Any, Any, Any, Any]:
    """Make an experiment of the functions of a module: ``sizes``, ``cells``, ``compute``, ``report``, ``prepare``, ``estimate``.

    Parameters
    ----------
    module
        The ``globals()`` of the module; cells share nothing without a ``prepare``.
    name, title, reproduces, more
        Fields of :class:`Experiment`; ``more`` may also replace functions.
    """
    functions = {one: module[one] for one in _FUNCTIONS if one in module}
    return Experiment(name, title, reproduces, **{"prepare": share_nothing} | functions | more)
