from __future__ import annotations

import pytest

from ntkit._src.common import warn_renamed


def renamed() -> None:
    warn_renamed("old=", "new=")


def test_warning_points_at_the_caller() -> None:
    with pytest.warns(DeprecationWarning, match="old= is deprecated: write new=.") as caught:
        renamed()
    assert caught[0].filename == __file__
