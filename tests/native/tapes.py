"""A small tape that the core accepts, to be printed and to be broken."""

from ntkit._src.native import _core as core

ROW = (1, 1, 4)
ONE = (1, 1, 1)

TABLE = core.SeriesTable(orders=[1], degree=2, coefficients=[0.0] * 4)

# The kernel of a convolution of kernel 1, ReLU and flatten, on rows of four positions; and one operation of every other type.
OPERATIONS = {
    "input": core.Input(size=ROW, channels=2),
    "layer": core.Layer(in_size=ROW, out_size=ROW, weight=2.0, activation=core.Rectifier(deviation_at=1)),
    "reduce": core.Reduce(in_size=ROW, out_size=ONE, factor=0.25),
    "one": core.Plain(size=ONE),
    "padded": core.Layer(in_size=ROW, out_size=ROW, kernel=(1, 1, 3), padding=(0, 0, 1), weight_rate=1.0),
    "rectified": core.Rectified(size=ROW, activation=core.Rectifier(deviation_at=1)),
    "smooth": core.Smooth(size=ROW, function=core.Function.ERF, deviation_at=1),
    "normalize": core.Normalize(size=ROW, scale_at=1),
    "fill": core.Fill(size=ROW, square=4.0),
    "pool": core.Pool(
        in_size=ROW, out_size=(1, 1, 2), axis=2, kernel=2, stride=2, weights=(0.5, 0.5), totals=(1.0, 1.0), inside_at=5
    ),
    "uneven": core.Pool(
        in_size=ROW, out_size=(1, 1, 2), axis=2, kernel=3, stride=2, weights=(0.5, 0.4), totals=(1.0, 0.8), inside_at=5
    ),
    "wide": core.Pool(in_size=ROW, out_size=ONE, axis=2, kernel=4, weights=(0.25,), totals=(1.0,), wide=True),
    "convert": core.Convert(size=ROW, half_at=1),
    "store": core.Store(size=ROW, what=core.Cached.HALF, target_at=5),
    "row": core.Plain(size=ROW),
    "series": core.Series(size=ROW, table=TABLE, series_at=1, deviation_at=1),
    "product": core.Product(size=ROW),
    "rescale": core.Rescale(size=ROW, ratio_at=2, half_at=1),
}
AT = {name: index for index, name in enumerate(OPERATIONS)}


def step(kind, operation, **fields):
    return core.Instruction(kind, AT[operation], **fields)


READ = step(core.Kind.INPUT, "input", out_slot=0)
ACTIVATE = step(core.Kind.LAYER, "layer", out_slot=1, in_slot=0, covariance_out=True)
CLEAR = step(core.Kind.CLEAR, "one", out_slot=0)
GOOD = [
    READ,
    ACTIVATE,
    CLEAR,
    step(core.Kind.REDUCE, "reduce", out_slot=0, in_slot=1, covariance_in=True, covariance_out=True),
    step(core.Kind.SETTLE, "one", out_slot=2, in_slot=0, covariance_out=True),
    step(core.Kind.OUTPUT, "one", in_slot=2, covariance_in=True),
]
SIZES = {
    "batch": 1,
    "slots": [4, 4, 1],
    "accumulators": 1,
    "accumulator_positions": 1,
    "cache_size": 9,
    "data_sizes": [8],
}


def tape(instructions=GOOD, operations=None, **sizes):
    operations = OPERATIONS if operations is None else {**OPERATIONS, **operations}
    return core.Tape(list(operations.values()), list(instructions), **{**SIZES, **sizes})
