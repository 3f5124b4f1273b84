"""What the benchmarks of large problems share: time and memory of a piece of work, networks, and the cells of a method."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from history import MISSING
from torch import nn

import ntkit
from ntkit._src.common import available_memory


def peak_memory() -> int:
    """Give the largest resident set of this process so far, in bytes."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])


def apart(work: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    """Run a function of a benchmark in a process of its own, so that its memory is its own, and give what it returns.

    ``seconds`` and ``memory`` (the process's peak, imports and data included) are added. Of a process that fails, ``failed``
    says how. What comes out is printed to the standard error stream too: a run that is stopped has lost nothing.
    """
    script = Path(sys.modules[work.__module__].__file__ or "").absolute()
    code = (
        f"import sys; sys.path[:0] = [{str(script.parent)!r}]\n"
        f"import json, time, {script.stem} as benchmark, scale_common\n"
        f"arguments = json.loads({json.dumps(arguments)!r})\n"
        "start = time.perf_counter()\n"
        f"found = benchmark.{work.__name__}(**arguments)\n"
        "found.setdefault('seconds', time.perf_counter() - start)\n"
        "found['memory'] = scale_common.peak_memory()\n"
        "print('RESULT', json.dumps(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    result: dict[str, Any]
    if done.returncode or not lines:
        killed = done.returncode == -signal.SIGKILL  # mostly by the system, out of memory
        result = {"failed": "killed" if killed else f"failed with status {done.returncode}"}
    else:
        result = json.loads(lines[-1].removeprefix("RESULT"))
    print(f"{work.__name__} {arguments}: {result}", file=sys.stderr, flush=True)
    return result


def relu_network(features: int, hidden: int = 3) -> nn.Module:
    """Give a fully connected ReLU network; its width does not matter."""
    layers: list[nn.Module] = []
    for _ in range(hidden):
        layers += [nn.Linear(features, 8), nn.ReLU()]
        features = 8
    return nn.Sequential(*layers, nn.Linear(features, 1))


def describe() -> None:
    """Print what the figures below were measured on."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"ntkit {ntkit.__version__}, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{torch.get_num_threads()} threads, {available_memory() / 1e9:.0f} GB of memory free, load {load}",
        flush=True,
    )


def figures(found: dict[str, Any], decimals: int = 3) -> list[str]:
    """Give the cells of what ``apart`` found: RMSE, seconds, gigabytes; of a method that failed, how."""
    if "failed" in found:
        return [MISSING, MISSING, found["failed"]]
    return [f"{found['RMSE']:.{decimals}f}", f"{found['seconds']:.1f}", f"{found['memory'] / 1e9:.2f}"]


def by_error(found: dict[str, Any]) -> float:
    """Give what methods are sorted by: the error, with those that failed at the end."""
    return float(found.get("RMSE", float("inf")))


def stopwatch() -> Callable[[], float]:
    """Give a function that tells the seconds since the last call."""
    last = [time.perf_counter()]

    def lap() -> float:
        now = time.perf_counter()
        seconds, last[0] = now - last[0], now
        return seconds

    return lap
