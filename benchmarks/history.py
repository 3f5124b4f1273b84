"""The history of benchmark runs: one line of JSON for each, with its commit, machine and ratios."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["append_record", "record"]


_EFFICIENCY = (
    "entries x layers / s, float32",
    "of the roofline, float32",
    "of the roofline, float64",
    "speed-up by threads",
    "times the matrix product",
)


def record(machine: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], peer: str | None) -> dict[str, Any]:
    """Give the record of one run: of every case milliseconds per entry, ratios to the peer's better type, and efficiency."""
    times: dict[str, dict[str, float]] = {}
    ratios: dict[str, dict[str, float]] = {}
    for row in rows:
        theirs = [row[name] for name in ("neural-tangents float32", "neural-tangents float64") if row.get(name)]
        own = {"float32": row["native float32"], "float64": row["native float64"], "reference": row.get("reference")}
        found = {**own, "neural-tangents": min(theirs) if theirs else None}
        times[row["case"]] = {name: 1e3 * value for name, value in found.items() if value is not None}
        given = {kind: row.get(f"ratio {kind}") for kind in ("float32", "float64")}
        ratios[row["case"]] = {name: value for name, value in given.items() if value is not None}
    return {
        "commit": _git("rev-parse", "HEAD")
        + ("-changed" if _git("status", "--porcelain", "--untracked-files=no") else ""),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": dict(machine),
        "peer": peer,
        "milliseconds per entry": times,
        "ratios": ratios,
        "efficiency": {row["case"]: {name: row[name] for name in _EFFICIENCY if row.get(name)} for row in rows},
    }


def append_record(path: Path, made: Mapping[str, Any]) -> None:
    """Add a record to the end of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(made) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
