"""Change one random token of the sources, run the tests that execute it, and list the changes that no test notices.

    python tools/mutants [--n 200] [--seed 0] [--folders rules kernels] [--again] [--jobs 2]

Each mutant lives in the memory of a forked process that imports ntkit from a copy of the tree in ``build/mutants``; no file
is changed. The tests of the changed file's own test file run first, then those of its folder, then those of the other
selected folders, each time those that execute the changed function, cheapest first, until one fails or ``--budget`` CPU
seconds have been spent. Which test executes what is recorded once for each state of the sources, as are the
mutants' results: an interrupted run resumes. ``--again`` tries the last run's survivors on the current tree.
``equivalent.toml`` lists the mutants that change nothing, which do not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from child import UNPATCHED, run_tests, run_tests_now, with_tests_collected
from sites import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "build" / "mutants"
TREE = STORE / "tree"
FOLDERS = ("rules", "native", "kernels", "solvers", "dynamics", "finite")
# What ntkit and its tests import, so that children find it imported.
IMPORTS = (
    "gpytorch",
    "matplotlib.pyplot",
    "mpmath",
    "rich.table",
    "scipy.integrate",
    "sklearn.gaussian_process",
    "sklearn.model_selection",
    "torch.export",
    "torch.func",
    "torch.fx",
    "torch._dynamo",
)
Tests = dict[str, tuple[float, set[str]]]
Entry = tuple[Mutant, dict[str, float], Path]  # with the tests to run and the file of the result
Task = tuple[str, float, Path, Callable[[], None]]


def main() -> int:
    """Run the mutants and print the report; the status is 0 if at least ``--least`` of them were killed."""
    arguments = _arguments()
    key = _copy()
    files = _test_files(arguments.folders)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # before numpy and torch: a process with threads must not fork
    for name in IMPORTS:
        importlib.import_module(name)
    tests = _coverage(files, arguments.jobs)
    equivalent = _equivalent()
    chosen = _survivors() if arguments.again else _draw(arguments.folders, arguments.n, arguments.seed, equivalent)
    unchanged = [
        Mutant(
            m.file,
            m.line,
            m.function,
            m.before,
            m.before,
            "nothing",
            (TREE / "src" / "ntkit" / "_src" / m.file).read_text(),
        )
        for m in chosen[:1]
    ]
    if any(r["status"] != "survived" for r in _run(key, unchanged, tests, arguments)):
        raise SystemExit(
            "a file that was not changed counts as killed: the tests fail by themselves. See build/mutants/results."
        )
    results = _run(key, chosen, tests, arguments)
    (STORE / "last.json").write_text(json.dumps(results, indent=1))
    return _report(results, arguments.least)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--folders", nargs="+", default=list(FOLDERS), help="folders or files of src/ntkit/_src")
    parser.add_argument("--budget", type=float, default=60, help="CPU seconds of tests to spend on a mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--again", action="store_true", help="try the survivors of the last run, instead of a draw")
    parser.add_argument(
        "--least", type=float, default=0.9, help="fraction of killed mutants below which the status is 1"
    )
    return parser.parse_args()


def _copy() -> str:
    """Copy what tests read to ``TREE``, with the compiled core, and return a hash of it."""
    core = subprocess.run(
        [sys.executable, "-c", "import ntkit._src.native._core as core; print(core.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.strip()
    shutil.rmtree(TREE, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.split("\n")
    for name in sorted(filter(None, listed)):
        source = ROOT / name
        if source.is_file():
            target = TREE / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    shutil.copy(core, TREE / "src" / "ntkit" / "_src" / "native")
    beside = ROOT.parent / "shared"  # data that some tests look for beside the checkout
    if beside.exists() and not (STORE / "shared").exists():
        (STORE / "shared").symlink_to(beside)
    return _hash([path for folder in ("src", "tests") for path in (TREE / folder).rglob("*.*") if path.suffix != ".so"])


def _hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(str(path.relative_to(TREE)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _test_files(folders: Iterable[str]) -> list[str]:
    tops = sorted({folder.split("/")[0] for folder in folders})
    paths = [path for top in tops for path in sorted((TREE / "tests" / top).rglob("test_*.py"))]
    paths.append(TREE / "tests" / "test_public_contract.py")
    paths += [
        path
        for top in tops
        for path in sorted((TREE / "src" / "ntkit" / "_src" / top).rglob("*.py"))
        if ">>>" in path.read_text()
    ]
    return [str(path.relative_to(TREE)) for path in paths]


def _coverage(files: list[str], jobs: int) -> Tests:
    """Return each passing test's CPU seconds and the functions it executes."""
    folder = STORE / "coverage"
    folder.mkdir(parents=True, exist_ok=True)
    helpers = [path for path in (TREE / "tests").rglob("*.py") if not path.name.startswith("test_")]
    common = _hash([TREE / "pyproject.toml", *(TREE / "src").rglob("*.py"), *helpers])
    outs = {file: folder / f"{file.replace('/', '.')}-{common}-{_hash([TREE / file])}.json" for file in files}
    missing = [file for file in files if not outs[file].exists()]
    size = {file: (TREE / file).stat().st_size for file in missing}
    tasks = []
    for file in sorted(missing, key=lambda f: -size[f]):  # long ones first, so that all processes finish together
        tasks.append((file, 3600.0, outs[file], partial(run_tests, TREE, [file], None, None, outs[file])))
    _fork(tasks, jobs, lambda name, done, total: print(f"\rcoverage {done}/{total} {name:60.60}", end="", flush=True))
    if missing:
        print()
    tests: Tests = {}
    for out in outs.values():
        found = json.loads(out.read_text())
        if found["failed"] is not None:
            raise SystemExit(f"without a mutant, tests could not run: {found['failed']}. See {out.with_suffix('.log')}")
        for node, (passed, seconds, functions) in found["tests"].items():
            if passed:
                tests[node] = (seconds, set(functions))
            else:
                print(f"without a mutant this test does not pass, and is left out: {node}")
    return tests


def _draw(folders: Iterable[str], n: int, seed: int, equivalent: dict[tuple[str, str, str], str]) -> list[Mutant]:
    every: list[Mutant] = []
    package = TREE / "src" / "ntkit" / "_src"
    for folder in folders:
        paths = [package / folder] if folder.endswith(".py") else sorted((package / folder).rglob("*.py"))
        for path in paths:
            every += mutants(str(path.relative_to(package)), path.read_text())
    kept = [mutant for mutant in every if (mutant.file, mutant.before, mutant.after) not in equivalent]
    print(f"{len(every)} mutants, of which {len(every) - len(kept)} are named as equivalent; {min(n, len(kept))} drawn")
    return random.Random(seed).sample(kept, min(n, len(kept)))


def _survivors() -> list[Mutant]:
    """Find the survivors of the last run in the current tree; those whose line no longer exists are dropped."""
    equivalent = _equivalent()
    wanted = {
        (r["file"], r["before"], r["after"])
        for r in json.loads((STORE / "last.json").read_text())
        if r["status"] == "survived"
    }
    found = []
    for file in sorted({file for file, _, _ in wanted}):
        path = TREE / "src" / "ntkit" / "_src" / file
        for mutant in mutants(file, path.read_text()) if path.exists() else []:
            name = (mutant.file, mutant.before, mutant.after)
            if name in wanted and name not in equivalent:
                found.append(mutant)
    return found


def _equivalent() -> dict[tuple[str, str, str], str]:
    path = Path(__file__).with_name("equivalent.toml")
    entries = tomllib.loads(path.read_text()).get("mutant", []) if path.exists() else []
    return {(e["file"], e["before"], e["after"]): e["reason"] for e in entries}


def _run(key: str, chosen: list[Mutant], tests: Tests, arguments: argparse.Namespace) -> list[dict[str, object]]:
    folder = STORE / "results" / key
    folder.mkdir(parents=True, exist_ok=True)
    outs = [folder / f"{hashlib.sha256(f'{m.file}{m.source}'.encode()).hexdigest()[:20]}.json" for m in chosen]
    missing = [(mutant, _order(mutant, tests, arguments.budget), out) for mutant, out in zip(chosen, outs, strict=True)]
    missing = [entry for entry in missing if not entry[2].exists()]
    started = time.monotonic()

    def show(name: str, done: int, total: int) -> None:
        print(f"\r{done}/{total} {time.monotonic() - started:.0f} s {name:50.50}", end="", flush=True)

    def tasks(entries: list[Entry], work: Callable[..., None]) -> list[Task]:
        return [
            (f"{mutant.file}:{mutant.line}", 120 + 20 * sum(order.values()), out, partial(work, mutant, order, out))
            for mutant, order, out in entries
        ]

    # Most mutants are in functions, whose code is replaced in a process that has imported and collected everything.
    inside = [entry for entry in missing if entry[0].function]
    if inside:
        files = list(dict.fromkeys(node.split("::")[0] for _, order, _ in inside for node in order))

        def session() -> None:
            def loop(items: dict[str, pytest.Item]) -> None:
                def patched(mutant: Mutant, order: dict[str, float], out: Path) -> None:
                    run_tests_now(items, order, mutant, TREE, out)

                _fork(tasks(inside, patched), arguments.jobs, show)

            with_tests_collected(TREE, files, loop)
            os._exit(0)

        process = os.fork()
        if process == 0:
            session()
        os.waitpid(process, 0)
        print()

    def imported(mutant: Mutant, order: dict[str, float], out: Path) -> None:
        run_tests(TREE, list(dict.fromkeys(node.split("::")[0] for node in order)), order, mutant, out)

    rest = [e for e in missing if not e[2].exists() or json.loads(e[2].read_text())["failed"] == UNPATCHED]
    for _, _, out in rest:
        out.unlink(missing_ok=True)
    _fork(tasks(rest, imported), arguments.jobs, show)
    print()
    results = []
    for mutant, out in zip(chosen, outs, strict=True):
        found = json.loads(out.read_text())
        status = "survived" if found["failed"] is None else "killed"
        entry = {k: v for k, v in dataclasses.asdict(mutant).items() if k != "source"}
        results.append(
            {**entry, "status": status, "by": found["failed"], "tests": len(_order(mutant, tests, arguments.budget))}
        )
    return results


def _order(mutant: Mutant, tests: Tests, budget: float) -> dict[str, float]:
    """Return the tests that may notice a mutant, in the order to run them, with their CPU seconds."""
    path = Path(mutant.file)
    mirrored = {f"tests/{path.with_name('test_' + path.name.lstrip('_'))}", f"src/ntkit/{mutant.file}"}
    folder = (f"tests/{path.parts[0]}/", f"src/ntkit/{path.parts[0]}/")
    where = f"{mutant.file}:{mutant.function}"
    if mutant.function:
        touched = {node for node, (_, functions) in tests.items() if where in functions}
    else:  # code that runs at import shows in whatever uses the file
        touched = {node for node, (_, functions) in tests.items() if any(f.startswith(where) for f in functions)}
    files = {node.split("::")[0] for node in touched} | mirrored
    if not mutant.function:  # defaults of arguments are part of the public contract
        files |= {node.split("::")[0] for node in tests if node.count("/") == 1}

    def rank(node: str) -> tuple[int, bool, float]:
        file = node.split("::")[0]
        stage = 0 if file in mirrored else 1 if file.startswith(folder) else 2
        # With a cache or a file-wide fixture, only one test is seen to execute what the others use too: they come later.
        return stage, node not in touched, tests[node][0]

    order, spent = {}, 0.0
    for node in sorted((node for node in tests if node.split("::")[0] in files), key=rank):
        if spent + tests[node][0] <= budget or not order:
            order[node] = tests[node][0]
            spent += tests[node][0]
    return order


def _fork(tasks: list[Task], jobs: int, show: Callable[[str, int, int], None]) -> None:
    """Run tasks (name, limit of seconds, result file, what to do) in forked processes, some at a time."""
    waiting, running, done = list(reversed(tasks)), {}, 0
    while waiting or running:
        while waiting and len(running) < jobs:
            name, limit, out, work = waiting.pop()
            sys.stdout.flush()
            process = os.fork()
            if process == 0:
                try:
                    work()
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(1)
            running[process] = (name, time.monotonic() + limit, out)
        time.sleep(0.05)
        for process, (name, deadline, out) in list(running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if not ended and time.monotonic() < deadline:
                continue
            if not ended:
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
            if not out.exists():
                reason = "took too long" if not ended or os.WTERMSIG(status) == signal.SIGPROF else "the process died"
                out.write_text(json.dumps({"failed": reason, "tests": {}}))
            shutil.rmtree(out.with_suffix(".tmp"), ignore_errors=True)
            del running[process]
            done += 1
            show(name, done, len(tasks))


def _report(results: list[dict[str, object]], least: float) -> int:
    survived = [r for r in results if r["status"] == "survived"]
    for r in sorted(survived, key=lambda r: (r["file"], r["line"])):
        print(
            f"survived {r['tests']} tests: src/ntkit/{r['file']}:{r['line']}  {r['change']}\n  - {r['before']}\n  + {r['after']}"
        )
    for folder in sorted({str(r["file"]).split("/")[0] for r in results}):
        here = [r for r in results if str(r["file"]).startswith(folder + "/")]
        print(f"{folder:12} {sum(r['status'] == 'killed' for r in here)} of {len(here)} killed")
    share = 1 - len(survived) / max(len(results), 1)
    print(f"{len(results) - len(survived)} of {len(results)} killed ({share:.1%})")
    return int(share < least)


if __name__ == "__main__":
    raise SystemExit(main())
