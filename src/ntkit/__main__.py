"""The program ``ntkit``, also ``python -m ntkit``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Answer ``--version``, for which nothing is imported, or run the command line: see ``ntkit._src.cli.main``."""
    if sys.argv[1:] == ["--version"]:
        return print_version()
    from ntkit._src.cli import main as run

    run()


def print_version() -> None:
    """Print the name and version of the program."""
    from importlib.metadata import version

    print(f"ntkit {version('ntkit')}")


if __name__ == "__main__":
    main()
