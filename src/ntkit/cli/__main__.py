"""``python -m ntkit.cli`` is ``ntkit``."""

from __future__ import annotations

from . import main

if __name__ == "__main__":
    main()
