"""What is learned of widths: which are one, which stay, and that every lesson is counted."""

from __future__ import annotations

import torch

from ntkit._src.finite.widening._equal_widths import Widths, _meetings


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


def test_each_pair_of_tensors_meets_once_in_the_order_of_the_operation() -> None:
    a, b, c = torch.empty(2, 3), torch.empty(5, 7), torch.empty(3, 4)
    pairs = [(x, i, y, j) for x, i, y, j in _meetings(torch.mm, [a, b])]
    assert [(x is a, i, y is b, j) for x, i, y, j in pairs] == [(True, -1, True, -2)]
    met = [(x, y) for x, _, y, _ in _meetings(torch.add, [a, b, c])]
    names = {id(a): "a", id(b): "b", id(c): "c"}
    assert list(dict.fromkeys(names[id(x)] + names[id(y)] for x, y in met)) == ["ab", "ac", "bc"]
