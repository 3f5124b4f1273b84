"""How the core refuses selections and maps of positions that are wrong."""

import pytest
from tests.native.tapes import OPERATIONS, READ, ROW, tape

from ntkit._src.native._core import Instruction, Kind, Map, Select

LAST = len(OPERATIONS)
MAPS = {Kind.SELECT, Kind.MAP, Kind.MAP_END, Kind.VARIANCE_MAP, Kind.VARIANCE_MAP_END}
HALF = (1, 1, 2)
SELECT = {"in_size": ROW, "out_size": HALF, "in_stride": (4, 4, 1), "axis": 2, "index": (3, 0)}
MAP = {
    "in_size": ROW,
    "out_size": HALF,
    "axis": 2,
    "matrix": (1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0),
    "first": (0, 3),
    "last": (2, 4),
    "totals": (3.0, 3.0),
    "inside_at": 5,
}

BAD_OPERATIONS = {
    "no such axis to select along": (Select(**{**SELECT, "axis": 3}), "there is no axis 3"),
    "positions missing": (Select(**{**SELECT, "index": (3,)}), "index must have 2 numbers. Got 1"),
    "an index along no axis": (Select(**{**SELECT, "axis": -1}), "index must have 0 numbers. Got 2"),
    "a position behind the last": (Select(**{**SELECT, "index": (4, 0)}), "reads position 4, behind the 4 positions"),
    "steps that are too long": (
        Select(**{**SELECT, "in_stride": (4, 4, 2)}),
        "reads position 6, behind the 4 positions",
    ),
    "steps backwards": (Select(**{**SELECT, "in_stride": (4, 4, -1)}), "in_stride must not be negative"),
    "half of the input beyond the end": (
        Select(**{**SELECT, "half_in_at": 6}),
        r"half_in_at \[6, 10\) ends behind the 9",
    ),
    "no such axis to map": (Map(**{**MAP, "axis": -1}), "there is no axis -1"),
    "another axis mapped": (Map(**{**MAP, "out_size": (1, 2, 2)}), "only the length of the mapped axis"),
    "numbers missing": (Map(**{**MAP, "matrix": (1.0,)}), "2 times 4 numbers. Got 1"),
    "totals missing": (Map(**{**MAP, "totals": (3.0,)}), "for each of the 2 rows"),
    "a row that ends behind the last column": (
        Map(**{**MAP, "last": (2, 5)}),
        "last of row 1 must lie between 0 and 4",
    ),
    "a row that ends before it begins": (Map(**{**MAP, "first": (3, 3)}), "last of row 0 must lie between 0 and 4"),
    "a row that begins before the first column": (Map(**{**MAP, "first": (-1, 3)}), "last of row 0 must lie between"),
    "sums inside beyond the end": (Map(**{**MAP, "inside_at": 8}), r"inside_at \[8, 10\) ends behind the 9"),
}


@pytest.mark.parametrize("name", BAD_OPERATIONS)
def test_operations_that_are_wrong_are_named(name):
    operation, message = BAD_OPERATIONS[name]
    with pytest.raises(ValueError, match=rf"operation {LAST} .*{message}"):
        tape(operations={"added": operation})


def with_zeros(**fields):
    return Select(**{**SELECT, "index": (3, -1), **fields})


BAD_INSTRUCTIONS = {
    "another operation": (
        Map(**MAP),
        Instruction(Kind.SELECT, LAST, out_slot=1, in_slot=0),
        "needs an operation Select, not Map",
    ),
    "nothing to select from": (
        Select(**SELECT),
        Instruction(Kind.SELECT, LAST, out_slot=0, in_slot=1),
        "nothing has written slot 1",
    ),
    "the half of zeros": (
        with_zeros(),
        Instruction(Kind.SELECT, LAST, out_slot=1),
        "half_in_at is needed for the H of zeros",
    ),
    "an offset outside": (
        Select(**SELECT),
        Instruction(Kind.SELECT, LAST, out_slot=1, in_slot=0, out_offset=(0, 0, 2)),
        "offset 2 along axis 2",
    ),
    "nothing to add to": (
        Map(**MAP),
        Instruction(Kind.MAP, LAST, out_slot=1, in_slot=0),
        "nothing has written slot 1, which it changes",
    ),
    "an uncleared sum": (
        Map(**{**MAP, "wide": True}),
        Instruction(Kind.MAP, LAST, out_slot=0, in_slot=0),
        "behind the 1 positions",
    ),
    "nothing known inside": (
        Map(**{**MAP, "inside_at": -1}),
        Instruction(Kind.MAP_END, LAST, out_slot=0),
        "inside_at is needed",
    ),
    "uneven rows": (
        Map(**{**MAP, "totals": (3.0, 2.0)}),
        Instruction(Kind.MAP_END, LAST, out_slot=0),
        "mean_at is needed",
    ),
    "no variances": (
        Map(**MAP),
        Instruction(Kind.VARIANCE_MAP, LAST, out_slot=1, in_slot=2),
        "ends behind the 1 positions of slot 2",
    ),
    "no sums": (
        Map(**MAP),
        Instruction(Kind.VARIANCE_MAP_END, LAST, out_slot=1, in_slot=0),
        "nothing has written slot 1, which it changes",
    ),
}


@pytest.mark.parametrize("name", BAD_INSTRUCTIONS)
def test_instructions_that_are_wrong_are_named(name):
    operation, instruction, message = BAD_INSTRUCTIONS[name]
    with pytest.raises(ValueError, match=rf"instruction 1 .*{message}"):
        tape([READ, instruction], operations={"added": operation})


def test_what_is_right_is_printed():
    good = tape(
        [
            READ,
            Instruction(Kind.SELECT, LAST, out_slot=1, covariance_out=True),
            Instruction(Kind.SELECT, LAST, out_slot=1, in_slot=0, in_offset=(0, 0, -3), out_offset=(0, 0, 1)),
            Instruction(Kind.MAP, LAST + 1, out_slot=1, in_slot=0),
            Instruction(Kind.MAP_END, LAST + 1, out_slot=1),
            Instruction(Kind.VARIANCE_MAP, LAST + 1, out_slot=1, in_slot=0),
            Instruction(Kind.VARIANCE_MAP_END, LAST + 1, out_slot=1, in_slot=0),
        ],
        operations={"select": with_zeros(), "map": Map(**MAP)},
    )
    assert {made.kind for made in good.instructions[1:]} == MAPS
    lines = str(good).splitlines()
    assert any(line.split()[:2] == [str(LAST), "Select"] and "index [3, -1]" in line for line in lines)
    assert any("Map" in line and "matrix [1, 2, 0, 0, 0, 0, ... 8 in all]" in line for line in lines)
    assert any(" select " in line and "slot 0 [0,0,-3]" in line for line in lines)
