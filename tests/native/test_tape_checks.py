"""How the core refuses a tape that is wrong: it names the instruction or operation and says why."""

import pytest
from tests.native.tapes import ACTIVATE, CLEAR, GOOD, ONE, READ, ROW, TABLE, step, tape
from tests.native.test_map_checks import MAPS
from tests.native.test_whole_checks import WHOLE

from ntkit._src.native._core import (
    Cached,
    Fill,
    Function,
    Input,
    Instruction,
    Kind,
    Layer,
    Normalize,
    Pool,
    Product,
    Rectified,
    Rectifier,
    Reduce,
    Rescale,
    Series,
    SeriesTable,
    Smooth,
    Store,
)

BAD_OPERATIONS = {
    "no size": ({"fill": Fill()}, r"operation 8 \(Fill .*every length must be at least 1. Got 0x0x0"),
    "no channels": ({"input": Input(size=ROW)}, r"operation 0 .*channels must be at least 1. Got 0"),
    "no such data": ({"input": Input(size=ROW, channels=2, data=1)}, r"operation 0 .*there is no data 1"),
    "more numbers than data": (
        {"input": Input(size=ROW, channels=3)},
        r"reads 12 numbers per input of data that have 8",
    ),
    "half beyond the end": (
        {"input": Input(size=ROW, channels=2, half_at=6)},
        r"half_at \[6, 10\) ends behind the 9 cached numbers",
    ),
    "half before the start": (
        {"input": Input(size=ROW, channels=2, half_at=-3)},
        r"half_at -3 is before the first cached number",
    ),
    "no kernel": (
        {"padded": Layer(in_size=ROW, out_size=ROW, kernel=(1, 0, 1))},
        r"operation 4 .*kernel, stride and dilation",
    ),
    "no deviation": ({"rectified": Rectified(size=ROW)}, r"operation 5 .*deviation_at is needed and not set"),
    "no deviation of a fused layer": (
        {"layer": Layer(in_size=ROW, out_size=ROW, activation=Rectifier())},
        r"operation 1 .*deviation_at is needed",
    ),
    "deviation beyond the end": (
        {"rectified": Rectified(size=ROW, activation=Rectifier(deviation_at=6))},
        r"deviation_at \[6, 10\) ends behind the 9",
    ),
    "a fused layer without weight": (
        {"layer": Layer(in_size=ROW, out_size=ROW, weight=0.0, activation=Rectifier(deviation_at=1))},
        "positive weight",
    ),
    "half a polynomial": (
        {"smooth": Smooth(size=ROW, function=Function.POLYNOMIAL, deviation_at=1, hermite_terms=(1.0, 2.0))},
        r"n \* n Hermite terms",
    ),
    "terms of no polynomial": (
        {"smooth": Smooth(size=ROW, deviation_at=1, hermite_terms=(1.0,))},
        r"n \* n Hermite terms",
    ),
    "no terms for a trained gain": (
        {
            "smooth": Smooth(
                size=ROW, function=Function.POLYNOMIAL, deviation_at=1, hermite_terms=(1.0,), trained_gain=1.0
            )
        },
        "as many gain_terms as hermite_terms",
    ),
    "terms for no trained gain": (
        {"smooth": Smooth(size=ROW, deviation_at=1, gain_terms=(1.0,))},
        "as many gain_terms as hermite_terms",
    ),
    "scales beyond the end": ({"normalize": Normalize(size=ROW, scale_at=2)}, r"scale_at \[2, 10\) ends behind the 9"),
    "no such axis": (
        {"wide": Pool(in_size=ONE, out_size=ONE, axis=3, weights=(1.0,), totals=(1.0,))},
        "there is no axis 3",
    ),
    "weights missing": (
        {"wide": Pool(in_size=ROW, out_size=ONE, axis=2, kernel=4, weights=(), totals=(1.0,))},
        "for each of the 1 windows",
    ),
    "totals missing": (
        {"wide": Pool(in_size=ROW, out_size=ONE, axis=2, kernel=4, weights=(1.0,), totals=())},
        "for each of the 1 windows",
    ),
    "another axis changed": (
        {"wide": Pool(in_size=(1, 2, 4), out_size=ONE, axis=2, kernel=4, weights=(1.0,), totals=(1.0,))},
        "only the length of the pooled axis",
    ),
    "sums beyond the output": (
        {"reduce": Reduce(in_size=ROW, out_size=ONE, out_stride=(0, 0, 1))},
        "its last sum is at 3, behind the 1 positions",
    ),
    "store beyond the end": ({"store": Store(size=ROW, target_at=6)}, r"target_at \[6, 10\) ends behind the 9"),
    "store scales beyond the end": (
        {"store": Store(size=ROW, what=Cached.SCALE, target_at=2)},
        r"target_at \[2, 10\) ends",
    ),
    "a series without table": ({"series": Series(size=ROW)}, r"operation 15 .*table is needed and not set"),
    "a series beyond the end": (
        {"series": Series(size=ROW, table=TABLE, series_at=2, deviation_at=1)},
        r"series_at \[2, 10\) ends behind the 9",
    ),
    "a table with coefficients missing": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[1], degree=2, coefficients=[0.0] * 5), series_at=1)},
        "4 coefficients for each piece. Got 5",
    ),
    "a table without pieces": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[1], degree=2), series_at=1)},
        "4 coefficients for each piece. Got 0",
    ),
    "a table without terms": ({"series": Series(size=ROW, table=SeriesTable(degree=2))}, "must be positive"),
    "a table of descending orders": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[3, 3], degree=2))},
        "must be positive and ascend",
    ),
    "a table of order zero": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[0], degree=2))},
        "must be positive and ascend",
    ),
    "a table of an order too large": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[1 << 17], degree=2))},
        "at most 131071. Got 131072",
    ),
    "a table of too many powers": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[n * n for n in range(1, 300)], degree=2))},
        "may need 256 powers of the correlation. Got",
    ),
    "a table of two jumps": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[1], degree=2, jumps=[1.0, 2.0]))},
        "must have three, and order one",
    ),
    "a table of jumps without order one": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[2], degree=2, jumps=[1.0, 2.0, 3.0], closed=[0.0] * 3))},
        "must have three, and order one",
    ),
    "a table of jumps without closed products": (
        {"series": Series(size=ROW, table=SeriesTable(orders=[1], degree=2, jumps=[1.0, 2.0, 3.0]))},
        "three closed products for each order, and no other any. Got 0",
    ),
    "store of a series without table": ({"store": Store(size=ROW, what=Cached.SERIES, target_at=1)}, "table is needed"),
    "store of a series beyond the end": (
        {"store": Store(size=ROW, what=Cached.SERIES, target_at=2, table=TABLE)},
        r"target_at \[2, 10\) ends behind the 9",
    ),
    "a product beyond the end": (
        {"product": Product(size=ROW, first_half_at=1, second_half_at=6)},
        r"second_half_at \[6, 10\) ends behind the 9",
    ),
    "rescale without ratio": ({"rescale": Rescale(size=ROW)}, "ratio_at is needed and not set"),
    "a ratio beyond the end": ({"rescale": Rescale(size=ROW, ratio_at=9)}, r"ratio_at \[9, 10\) ends behind the 9"),
    "rescale beyond the end": (
        {"rescale": Rescale(size=ROW, ratio_at=2, half_at=6)},
        r"half_at \[6, 10\) ends behind the 9",
    ),
    "a layer without unit": ({"padded": Layer(in_size=ROW, out_size=ROW, unit_at=-1)}, "unit_at is needed and not set"),
    "a unit beyond the end": (
        {"store": Store(size=ROW, what=Cached.SCALE, target_at=1, unit_at=9)},
        r"unit_at \[9, 10\) ends behind the 9",
    ),
}


@pytest.mark.parametrize("name", BAD_OPERATIONS)
def test_operations_that_are_wrong_are_named(name):
    operations, message = BAD_OPERATIONS[name]
    with pytest.raises(ValueError, match=message):
        tape(operations=operations)


BAD_INSTRUCTIONS = {
    "no such operation": (
        [Instruction(Kind.INPUT, 99, out_slot=0)],
        r"instruction 0 \(input .*there is no operation 99, only 18",
    ),
    "another operation": (
        [step(Kind.INPUT, "one", out_slot=0)],
        r"instruction 0 .*needs an operation Input, not Plain",
    ),
    "no such slot to write": ([step(Kind.INPUT, "input", out_slot=3)], "there is no slot 3, only 3"),
    "no such slot to read": (
        [READ, step(Kind.LAYER, "layer", out_slot=1, in_slot=7)],
        r"instruction 1 .*there is no slot 7",
    ),
    "a slot that is too small": (
        [step(Kind.INPUT, "input", out_slot=2)],
        "the plane of 1x1x4 ends behind the 1 positions of slot 2",
    ),
    "a slot that is too small to read": (
        [
            step(Kind.FILL, "fill", out_slot=0),
            CLEAR,
            step(Kind.SETTLE, "one", out_slot=2, in_slot=0),
            step(Kind.LAYER, "layer", out_slot=0, in_slot=2),
        ],
        "instruction 3 .*ends behind the 1 positions of slot 2",
    ),
    "a slot that nothing wrote": ([step(Kind.LAYER, "layer", out_slot=1, in_slot=0)], "nothing has written slot 0"),
    "a sum that nothing cleared": ([READ, ACTIVATE, GOOD[3]], "nothing has cleared accumulator 0"),
    "no such sum": ([step(Kind.CLEAR, "one", out_slot=1)], "there is no accumulator 1, only 1"),
    "a sum that is too small": (
        [step(Kind.CLEAR, "row", out_slot=0)],
        "the plane of 1x1x4 ends behind the 1 positions of an accumulator",
    ),
    "an offset outside": (
        [step(Kind.INPUT, "input", out_slot=0, out_offset=(0, 0, 4))],
        "offset 4 along axis 2 is outside a plane of 1x1x4",
    ),
    "an offset before": (
        [step(Kind.INPUT, "input", out_slot=0, out_offset=(0, -1, 0))],
        "offset -1 along axis 1 is outside",
    ),
    "an input offset outside": (
        [READ, step(Kind.LAYER, "layer", out_slot=1, in_slot=0, in_offset=(0, 0, -4))],
        "offset -4 along axis 2 is outside",
    ),
    "a layer that reads nothing": (
        [step(Kind.LAYER, "layer", out_slot=0)],
        "reads no plane, though its windows stay inside",
    ),
    "an activation that reads nothing": ([step(Kind.RECTIFIED, "rectified", out_slot=0)], "it reads no slot"),
    "padding of H without half": (
        [READ, step(Kind.LAYER, "padded", out_slot=1, in_slot=0)],
        "half_in_at is needed for the padding of H",
    ),
    "Theta beside H without half": (
        [READ, step(Kind.LAYER, "padded", out_slot=1, in_slot=0, theta_out=True)],
        "half_in_at|half_out_at is needed",
    ),
    "a fused layer of K": (
        [READ, step(Kind.LAYER, "layer", out_slot=1, in_slot=0, covariance_in=True)],
        "an activation reads H",
    ),
    "a smooth H without half": (
        [READ, step(Kind.SMOOTH, "smooth", out_slot=1, in_slot=0)],
        "half_at is needed to write H",
    ),
    "a series of H without half": (
        [READ, step(Kind.SERIES, "series", out_slot=1, in_slot=0)],
        "half_at is needed to write H",
    ),
    "a product of H without halves": (
        [READ, step(Kind.MULTIPLY, "product", out_slot=0, in_slot=0)],
        "are needed to multiply H",
    ),
    "a product of H and K": (
        [READ, step(Kind.MULTIPLY, "product", out_slot=0, in_slot=0, covariance_out=True)],
        "must hold K, or both H",
    ),
    "a change of scale from H to K": (
        [READ, step(Kind.RESCALE, "rescale", out_slot=1, in_slot=0, covariance_out=True)],
        "must hold K, or both H",
    ),
    "a product that was not begun": (
        [READ, step(Kind.MULTIPLY, "product", out_slot=1, in_slot=0, covariance_in=True, covariance_out=True)],
        "nothing has written slot 1",
    ),
    "the end of a pool that was not begun": (
        [step(Kind.POOL_END, "pool", out_slot=0)],
        "nothing has written slot 0, which it changes",
    ),
    "an uneven pool without means": (
        [READ, step(Kind.POOL_END, "uneven", out_slot=0)],
        "mean_at is needed where the totals of windows differ",
    ),
    "a sum of planes that was not begun": (
        [READ, step(Kind.COMBINE, "row", out_slot=1, in_slot=0)],
        "nothing has written slot 1",
    ),
    "an output with positions": ([READ, step(Kind.OUTPUT, "row", in_slot=0)], "the output must have no positions"),
    "a chain that ends": ([step(Kind.INPUT, "input", out_slot=0, chained=True)], "it is chained, and nothing follows"),
    "a chain to another slot": (
        [
            step(Kind.FILL, "fill", out_slot=1),
            step(Kind.INPUT, "input", out_slot=0, chained=True),
            step(Kind.LAYER, "layer", out_slot=0, in_slot=1),
        ],
        "not a layer or reduction that reads slot 0",
    ),
    "a chained activation": (
        [
            READ,
            step(Kind.RECTIFIED, "rectified", out_slot=1, in_slot=0, chained=True),
            step(Kind.LAYER, "layer", out_slot=0, in_slot=1),
        ],
        "only an input or a layer can be chained",
    ),
}


@pytest.mark.parametrize("name", BAD_INSTRUCTIONS)
def test_instructions_that_are_wrong_are_named(name):
    instructions, message = BAD_INSTRUCTIONS[name]
    with pytest.raises(ValueError, match=message):
        tape(instructions)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch": 0}, "the batch must be at least 1"),
        ({"slots": [4, 0, 1]}, "a slot must have at least one position. Got 0"),
        ({"cache_size": 0}, "at least one cached number"),
        ({"accumulators": -1}, "must not be negative"),
        ({"data_sizes": [-8]}, "must not be negative. Got -8"),
        ({"batch": 3}, "in a network of vectors sizes are 1x1x3. Got 1x1x4"),
        ({"cache_size": 8}, "ends behind the 8 cached numbers"),
    ],
)
def test_sizes_that_are_wrong_are_named(sizes, message):
    with pytest.raises(ValueError, match=message):
        tape(**sizes)


def test_every_kind_has_an_instruction_that_is_accepted():
    """The tables above would prove nothing if the checker refused everything."""
    accepted = [
        *GOOD,
        step(Kind.RECTIFIED, "rectified", out_slot=1, in_slot=0),
        step(Kind.SMOOTH, "smooth", out_slot=1, in_slot=0, covariance_out=True),
        step(Kind.SERIES, "series", out_slot=1, in_slot=0, covariance_out=True),
        step(Kind.NORMALIZE, "normalize", out_slot=1, in_slot=0),
        step(Kind.FILL, "fill", out_slot=0),
        step(Kind.POOL, "pool", out_slot=1, in_slot=0, in_offset=(0, 0, -3), out_offset=(0, 0, -1)),
        step(Kind.POOL_END, "pool", out_slot=1),
        step(Kind.VARIANCE_POOL, "pool", out_slot=1, in_slot=0),
        step(Kind.VARIANCE_POOL_END, "pool", out_slot=0, in_slot=1),
        step(Kind.COMBINE, "row", out_slot=1, in_slot=0),
        step(Kind.MULTIPLY, "product", out_slot=1, in_slot=0, covariance_in=True, covariance_out=True),
        step(Kind.CONVERT, "convert", out_slot=1, in_slot=0),
        step(Kind.RESCALE, "rescale", out_slot=1, in_slot=0),
        step(Kind.STORE, "store", in_slot=1),
        step(Kind.LAYER, "padded", out_slot=0),
    ]
    with pytest.raises(ValueError, match="half_in_at"):  # the last one pads H
        tape(accepted)
    tape([*accepted[:-1], step(Kind.LAYER, "padded", out_slot=0, covariance_in=True)])
    assert {made.kind for made in accepted} | MAPS | WHOLE == set(Kind)  # those are in files of their own
