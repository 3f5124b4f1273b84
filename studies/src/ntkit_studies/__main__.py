"""``python -m ntkit_studies``: lists the experiments, runs one, or rewrites the report of stored results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ntkit.errors import NtkitError

from ._index import NAMES, find, listing, of_folder
from .skeleton._report import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and return the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = argparse.ArgumentParser(prog="python -m ntkit_studies", description="Without a name: list them.")
    options.add_argument("name", nargs="?", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}")
    options.add_argument("options", nargs=argparse.REMAINDER, help="of the experiment; NAME --help shows them")
    options.add_argument("--report", type=Path, metavar="FOLDER", help="write the report of stored results again")
    chosen = options.parse_args(given)
    if chosen.name is not None:
        return find(chosen.name).main(chosen.options)
    if chosen.report is None:
        print(listing())
        return 0
    try:
        experiment = of_folder(chosen.report)
        results = experiment.read(chosen.report)
        for path in write_report(experiment.report(results), results, chosen.report):
            print(path.resolve())
    except (NtkitError, OSError) as error:
        options.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
