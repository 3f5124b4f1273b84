"""The work of a forked process: import ntkit from a copy of the tree, apply one mutant, and run some tests."""

from __future__ import annotations

import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from sites import Mutant

__all__ = ["UNPATCHED", "run_tests", "run_tests_now", "with_tests_collected"]

UNPATCHED = "no function to patch"
BYTES = 8 * 2**30  # a mutant that allocates more than this is killed by its MemoryError


def run_tests(tree: Path, files: list[str], order: dict[str, float] | None, mutant: Mutant | None, out: Path) -> None:
    """Run tests in this process, which does not return; write what happened to ``out``.

    Parameters
    ----------
    tree
        The copy of the project.
    files
        Test files, or source files with doctests, relative to ``tree``.
    order
        The tests to run, by node id, in this order, each with its CPU seconds without a mutant; the first failure ends
        the run. None: run every test of the files and record the functions that each executes.
    mutant
        The change to run with, which is made only in memory.
    out
        Receives JSON: ``{"failed": node id or None, "tests": {node id: [passed, CPU seconds, functions]}}``.
    """
    _isolate(out)
    os.chdir(tree)
    plugin = _Order(order) if order is not None else _Coverage(tree / "src" / "ntkit" / "_src")
    failed = "import"
    try:
        _import_ntkit(tree, mutant)
        arguments = ["-q", "-x"] if order is not None else ["-q"]
        arguments += [
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:benchmark",
            f"--basetemp={out.with_suffix('.tmp')}",
        ]
        code = pytest.main([*arguments, f"--rootdir={tree}", *files], plugins=[plugin])
        failed = plugin.failed or (None if code in plugin.fine else "collection")
    except Exception as error:  # a mutant may break the import in any way
        print(repr(error))
    out.write_text(json.dumps({"failed": failed, "tests": plugin.tests}))
    os._exit(0)


def with_tests_collected(tree: Path, files: list[str], work: Callable[[dict[str, pytest.Item]], None]) -> None:
    """Import ntkit and collect tests once in this process, then pass them to ``work``, by node id."""
    os.chdir(tree)
    _import_ntkit(tree, None)

    class Loop:
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            work({item.nodeid: item for item in session.items})
            return True

    arguments = [
        "-q",
        "-s",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",
        f"--basetemp={tree.parent / 'tmp'}",
    ]
    pytest.main([*arguments, f"--rootdir={tree}", *files], plugins=[Loop()])


def run_tests_now(
    items: dict[str, pytest.Item], order: dict[str, float], mutant: Mutant, tree: Path, out: Path
) -> None:
    """Apply a mutant to the functions of this process, run collected tests in order up to the first failure, and exit.

    ``out`` receives the same as in :func:`run_tests`; "failed" is ``UNPATCHED`` if the mutant is in no function.
    """
    _isolate(out)
    failed: str | None = UNPATCHED
    if _patch(mutant, tree):
        plugin = _Order(order)
        chosen = [items[node] for node in order if node in items]
        next(iter(items.values())).config.pluginmanager.register(plugin)
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if plugin.failed is not None:
                break
        failed = plugin.failed
    out.write_text(json.dumps({"failed": failed, "tests": {}}))
    os._exit(0)


def _isolate(out: Path) -> None:
    """Put this process into its own group, with a log and a memory limit."""
    os.setpgid(0, 0)
    log = os.open(out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))


def _patch(mutant: Mutant, tree: Path) -> bool:
    """Give every function of the changed source its new code; return whether there was one."""
    path = str(tree / "src" / "ntkit" / "_src" / mutant.file)
    name = mutant.function.split(".<locals>.")[0]  # inner functions are created from the code of the outer one
    codes = [
        code for code in _codes(compile(mutant.source, path, "exec", dont_inherit=True)) if code.co_qualname == name
    ]
    found = False
    for thing in gc.get_objects():
        # type(): isinstance() would run code of objects that answer for their class.
        if type(thing) is functools._lru_cache_wrapper and thing.__module__.startswith("ntkit"):
            thing.cache_clear()  # drop what was computed without the mutant while collecting the tests
        if type(thing) is FunctionType and thing.__code__.co_filename == path and thing.__code__.co_qualname == name:
            same = [code for code in codes if code.co_firstlineno == thing.__code__.co_firstlineno]
            if len(same) != 1 or same[0].co_freevars != thing.__code__.co_freevars:
                return False
            thing.__code__ = same[0]
            found = True
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _import_ntkit(tree: Path, mutant: Mutant | None) -> None:
    """Import the copy's ntkit, bypassing the editable install and pytest's own module search."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable_")]
    sys.path.insert(0, str(tree / "src"))
    if mutant is not None:
        sys.meta_path.insert(0, _Finder(tree / "src" / "ntkit" / "_src" / mutant.file, mutant))
    import ntkit

    assert Path(ntkit.__file__).is_relative_to(tree), ntkit.__file__


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, path: Path, mutant: Mutant) -> None:
        parts = [*Path("ntkit", "_src", mutant.file).with_suffix("").parts]
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.path, self.source = path, mutant.source

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        places = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        loader = _Loader(name, str(self.path), self.source)
        return importlib.util.spec_from_file_location(name, self.path, loader=loader, submodule_search_locations=places)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _Order:
    """Run chosen tests in a chosen order, each with a limit of CPU time that kills the process."""

    fine = (pytest.ExitCode.OK,)

    def __init__(self, order: dict[str, float]) -> None:
        self.order = order
        self.failed: str | None = None
        self.tests: dict[str, Any] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[node] for node in self.order if node in by_id]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_PROF, 20 + 10 * self.order[item.nodeid])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


class _Coverage:
    """Record the functions of ntkit that each test executes, including its fixtures."""

    fine = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)

    def __init__(self, package: Path) -> None:
        self.package = f"{package}{os.sep}"
        self.failed: str | None = None
        self.tests: dict[str, Any] = {}
        self._passed: dict[str, bool] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        codes: dict[int, CodeType] = {}

        def note(frame: FrameType, event: str, argument: object) -> None:
            codes.setdefault(id(frame.f_code), frame.f_code)

        threading.settrace(note)
        sys.settrace(note)
        start = time.process_time()
        try:
            return (yield)
        finally:
            seconds = time.process_time() - start
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            names = {
                f"{code.co_filename.removeprefix(self.package)}:{code.co_qualname}"
                for code in codes.values()
                if code.co_filename.startswith(self.package)
            }
            self.tests[item.nodeid] = [self._passed.get(item.nodeid, False), round(seconds, 3), sorted(names)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed[report.nodeid] = self._passed.get(report.nodeid, True) and report.passed
