"""What the benchmarks of large problems share: time and memory of a piece of work, networks, and a line per method."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ntkit
from ntkit.gram import available_memory


def peak_memory() -> int:
    """Give the largest resident set of this process so far, in bytes."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])


def apart(work: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    """Run a function of a benchmark in a process of its own, so that its memory is its own, and give what it returns.

    ``seconds`` and ``memory`` (the process's peak, imports and data included) are added.
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
    if done.returncode or not lines:
        return {"failed": f"exit code {done.returncode}"}
    result: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT"))
    return result


def relu_network(features: int, hidden: int = 3) -> nn.Module:
    """Give a fully connected ReLU network; its width does not matter."""
    layers: list[nn.Module] = []
    for _ in range(hidden):
        layers += [nn.Linear(features, 8), nn.ReLU()]
        features = 8
    return nn.Sequential(*layers, nn.Linear(features, 1))


def vanilla_cnn(depth: int) -> nn.Module:
    """Give the network of Arora et al. 2019, CNTK-V: 3x3 convolutions with ReLU, then flatten and a linear layer."""
    layers: list[nn.Module] = []
    channels = 3
    for _ in range(depth):
        layers += [nn.Conv2d(channels, 8, 3, padding=1, bias=False), nn.ReLU()]
        channels = 8
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 32 * 32, 1, bias=False))


def describe() -> None:
    """Print what the figures below were measured on."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"ntkit {ntkit.__version__}, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{torch.get_num_threads()} threads, {available_memory() / 1e9:.0f} GB of memory free, load {load}",
        flush=True,
    )


def show(name: str, found: dict[str, Any], *columns: str) -> None:
    """Print a method's seconds, peak memory and other figures."""
    if "failed" in found:
        print(f"{name:42s}  failed: {found['failed']}", flush=True)
        return
    texts = {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in found.items()}
    figures = "  ".join(f"{column} {texts[column]}" for column in columns if column in texts)
    print(f"{name:42s}  {found['seconds']:8.1f} s  {found['memory'] / 1e9:6.2f} GB  {figures}", flush=True)


def stopwatch() -> Callable[[], float]:
    """Give a function that tells the seconds since the last call."""
    last = [time.perf_counter()]

    def lap() -> float:
        now = time.perf_counter()
        seconds, last[0] = now - last[0], now
        return seconds

    return lap
