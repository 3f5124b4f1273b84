from __future__ import annotations

from ntkit._src.experiments._by_width import WidthCell, by_width, network_seed, width_cells


def test_numbers_by_curve_width_and_draw():
    cells = width_cells(["a", "b"], [8, 16, 32], 2)
    values = {cell: cell.width + 0.1 * cell.draw + (cell.curve == "b") for cell in reversed(cells)}
    found = by_width(values, [8, 16, 32], 2, lambda one: 2 * one)
    assert found["a"].tolist() == [[16, 16.2], [32, 32.2], [64, 64.2]]
    assert found["b"][0, 0] == 18


def test_seeds_differ_by_width_and_draw_and_not_by_curve():
    cells = width_cells(["a", "b"], [8, 16], 3)
    seeds = {cell: network_seed(5, cell, [8, 16], 3) for cell in cells}
    assert len(set(seeds.values())) == 6
    assert seeds[WidthCell("a", 16, 1)] == seeds[WidthCell("b", 16, 1)] == 5 + 7919 * 4
