"""What is learned of widths: which are one, which stay, and that every lesson is counted."""

from __future__ import annotations

from ntkit.finite.widening._equal_widths import Widths


def test_joined_widths_are_one() -> None:
    widths = Widths()
    widths.join("a", "b")
    widths.join("c", "d")
    widths.join("b", "c")
    assert len({widths.root(owner) for owner in "abcd"}) == 1
    assert widths.root("e") == "e"
    assert widths.learned == 3


def test_what_is_joined_with_a_fixed_width_stays() -> None:
    for first, second in (("a", "b"), ("b", "a")):
        widths = Widths()
        widths.fix("a")
        assert not widths.is_hidden("a") and widths.is_hidden("b")
        widths.join(first, second)
        assert not widths.is_hidden("a") and not widths.is_hidden("b")
        assert widths.learned == 2  # so that the module is run again
