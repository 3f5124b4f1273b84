"""How the core refuses operations on whole covariances, and on tokens, that are wrong."""

import pytest
from tests.native.tapes import OPERATIONS, tape

from ntkit._src.native._core import (
    Convert,
    Fill,
    Instruction,
    Kind,
    Layer,
    Lookup,
    Matrix,
    Plain,
    Select,
    Table,
    Weights,
)

LAST = len(OPERATIONS)
PAIR, SQUARE = (1, 1, 2), (1, 2, 2)
SIZES = {"slots": [4, 4, 4], "data_sizes": [8, 2, 4]}
WHOLE = {
    Kind.RELABEL,
    Kind.PLACE,
    Kind.INDEPENDENT,
    Kind.LOOKUP,
    Kind.TABLE,
    Kind.GATHER,
    Kind.LEFT,
    Kind.RIGHT,
    Kind.SCATTER,
    Kind.WEIGHTS,
}

BAD_OPERATIONS = {
    "no matrix": (Matrix(rows=2, columns=2), "must be cached, data or the same for all inputs"),
    "two matrices": (Matrix(rows=2, columns=2, cached_at=1, data=2), "must be cached, data or the same"),
    "an empty matrix": (Matrix(rows=0, columns=2, numbers=[1.0]), "every length must be at least 1"),
    "numbers missing": (Matrix(rows=2, columns=2, numbers=[1.0]), "must have 4 numbers. Got 1"),
    "a matrix of no data": (Matrix(rows=2, columns=2, data=3), "there is no data 3"),
    "a matrix of other data": (Matrix(rows=2, columns=2, data=0), "reads 4 numbers per input of data that have 8"),
    "a matrix behind the end": (Matrix(rows=2, columns=2, cached_at=6), r"cached_at \[6, 10\) ends behind the 9"),
    "weights that are not kept": (Weights(tokens=2), "target_at is needed and not set"),
    "weights behind the end": (Weights(tokens=2, target_at=6), r"target_at \[6, 10\) ends behind the 9"),
    "a mask of one token": (Weights(tokens=2, mask=[0.0], target_at=1), "mask must have 4 numbers. Got 1"),
    "integers of no data": (Lookup(size=PAIR, data=-1), "there is no data -1"),
    "integers of other data": (Lookup(size=PAIR, data=2), "reads 2 numbers per input of data that have 4"),
    "a table of one": (Table(size=PAIR, covariance=[1.0]), "a table must have 4 numbers. Got 1"),
    "a tangent of one": (Table(size=PAIR, tangent=[1.0]), "a table must have 4 numbers. Got 1"),
}


@pytest.mark.parametrize("name", BAD_OPERATIONS)
def test_operations_that_are_wrong_are_named(name):
    operation, message = BAD_OPERATIONS[name]
    with pytest.raises(ValueError, match=rf"operation {LAST} .*{message}"):
        tape([], operations={"added": operation}, **SIZES)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Matrix(rows=16, columns=16, numbers=[1.0]), "there are no matrices in a network of vectors"),
        (Weights(tokens=16, target_at=1), "there is no attention in a network of vectors"),
        (Lookup(size=(1, 1, 16)), "integers must have positions"),
    ],
)
def test_vectors_have_no_positions_to_mix(operation, message):
    with pytest.raises(ValueError, match=message):
        tape([], operations=dict.fromkeys(OPERATIONS, operation), batch=16, cache_size=64)


ENDS, MATRIX = Convert(size=PAIR, half_at=1), Matrix(rows=1, columns=2, numbers=[1.0, 2.0])
FIRST = Select(in_size=(1, 1, 1), out_size=PAIR, axis=2, index=(0, -1))

READ_SLOT = {"out_slot": 1, "in_slot": 0}
BAD_INSTRUCTIONS = {
    "another operation": (MATRIX, Kind.GATHER, READ_SLOT, "needs an operation Convert, not Matrix"),
    "H converted without half": (
        Convert(size=PAIR),
        Kind.CONVERT,
        READ_SLOT,
        "half_at is needed, because the plane holds H",
    ),
    "H gathered to K": (Convert(size=PAIR), Kind.GATHER, {**READ_SLOT, "covariance_out": True}, "half_at is needed"),
    "K scattered to H": (Convert(size=PAIR), Kind.SCATTER, {**READ_SLOT, "covariance_in": True}, "half_at is needed"),
    "the H of independent values": (Convert(size=PAIR), Kind.INDEPENDENT, {"out_slot": 1}, "half_at is needed"),
    "a slot that is too small": (
        Convert(size=(1, 1, 3), half_at=1),
        Kind.GATHER,
        READ_SLOT,
        "ends behind the 4 positions",
    ),
    "nothing to multiply": (MATRIX, Kind.LEFT, {"out_slot": 1, "in_slot": 2}, "nothing has written slot 2"),
    "nothing to add to": (
        Table(size=PAIR),
        Kind.TABLE,
        {"out_slot": 1},
        "nothing has written slot 1, which it changes",
    ),
    "positions lost": (
        Select(in_size=PAIR, out_size=(1, 1, 1)),
        Kind.RELABEL,
        READ_SLOT,
        "merging axes must keep the number of positions",
    ),
    "a block outside": (
        Select(in_size=(1, 1, 2), out_size=PAIR, axis=2, index=(-1, 0)),
        Kind.PLACE,
        READ_SLOT,
        "the block must lie inside",
    ),
    "weights of nothing": (Weights(tokens=2, target_at=1), Kind.WEIGHTS, {"in_slot": 2}, "nothing has written slot 2"),
    "a window row by row": (
        Layer(in_size=PAIR, out_size=PAIR, kernel=(1, 1, 3), padding=(0, 0, 1)),
        Kind.LAYER,
        {**READ_SLOT, "whole": 2},
        "a window reads other entries",
    ),
    "a plane row by row": (ENDS, Kind.GATHER, {**READ_SLOT, "whole": 2}, "works on planes, not on whole covariances"),
    "other positions row by row": (ENDS, Kind.CONVERT, {**READ_SLOT, "whole": 4}, "whole for 4 positions and has 2"),
    "an offset of all": (
        ENDS,
        Kind.CONVERT,
        {**READ_SLOT, "whole": 2, "in_offset": (0, 0, 1)},
        "whole covariances have no offset",
    ),
    "a slot without room for all": (
        Convert(size=(1, 1, 3), half_at=1),
        Kind.CONVERT,
        {**READ_SLOT, "whole": 3},
        "slot 0 is too small for a whole covariance",
    ),
}


@pytest.mark.parametrize("name", BAD_INSTRUCTIONS)
def test_instructions_that_are_wrong_are_named(name):
    operation, kind, fields, message = BAD_INSTRUCTIONS[name]
    first = Instruction(Kind.FILL, LAST + 1, out_slot=0)
    with pytest.raises(ValueError, match=rf"instruction 1 .*{message}"):
        tape([first, Instruction(kind, LAST, **fields)], {"added": operation, "four": Fill(size=SQUARE)}, **SIZES)


def test_what_is_right_is_accepted_and_printed():
    operations = {
        "ends": ENDS,
        "bare": Convert(size=PAIR),
        "matrix": MATRIX,
        "weights": Weights(tokens=2, target_at=1),
        "lookup": Lookup(size=PAIR, data=1),
        "table": Table(size=PAIR, covariance=[1.0, 0.0, 0.0, 2.0]),
        "merge": Select(in_size=SQUARE, out_size=(1, 1, 4)),
        "first": FIRST,
        "pair": Plain(size=PAIR),
    }
    at = {name: LAST + index for index, name in enumerate(operations)}
    made = [
        Instruction(Kind.LOOKUP, at["lookup"], out_slot=0),
        Instruction(Kind.TABLE, at["table"], out_slot=0),
        Instruction(Kind.GATHER, at["ends"], out_slot=1, in_slot=0, covariance_out=True),
        Instruction(Kind.WEIGHTS, at["weights"], in_slot=1, covariance_in=True),
        Instruction(Kind.LEFT, at["matrix"], out_slot=2, in_slot=1, covariance_in=True, covariance_out=True),
        Instruction(Kind.RIGHT, at["matrix"], out_slot=1, in_slot=2, covariance_in=True, covariance_out=True),
        Instruction(Kind.INDEPENDENT, at["bare"], out_slot=2, covariance_out=True, whole=2),
        Instruction(Kind.PLACE, at["first"], out_slot=2, in_slot=1, covariance_in=True, covariance_out=True),
        Instruction(Kind.COMBINE, at["pair"], out_slot=2, in_slot=1, covariance_in=True, covariance_out=True, whole=2),
        Instruction(Kind.SCATTER, at["bare"], out_slot=0, in_slot=2, covariance_in=True, covariance_out=True),
        Instruction(Kind.RELABEL, at["merge"], out_slot=1, in_slot=2),
    ]
    good = tape(made, operations, **SIZES)
    assert {step.kind for step in good.instructions} == WHOLE | {Kind.COMBINE}
    lines = str(good).splitlines()
    assert any(" combine " in line and "whole 2" in line for line in lines)
    assert all(any(f" {kind.name.lower()} " in line for line in lines) for kind in WHOLE)
