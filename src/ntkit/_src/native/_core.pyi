import enum
from collections.abc import Sequence
from typing import Annotated, Literal, overload

import numpy
from numpy.typing import NDArray

def version() -> str: ...
def simd_level() -> Literal["avx512", "avx2", "neon", "baseline"]: ...
def compiler() -> str: ...
def compiler_version() -> str: ...

class Kind(enum.IntEnum):
    INPUT = 0

    LAYER = 1

    RECTIFIED = 2

    SMOOTH = 3

    SERIES = 4

    NORMALIZE = 5

    MULTIPLY = 6

    FILL = 7

    CLEAR = 8

    POOL = 9

    POOL_END = 10

    VARIANCE_POOL = 11

    VARIANCE_POOL_END = 12

    SELECT = 13

    MAP = 14

    MAP_END = 15

    VARIANCE_MAP = 16

    VARIANCE_MAP_END = 17

    REDUCE = 18

    RELABEL = 19

    PLACE = 20

    INDEPENDENT = 21

    LOOKUP = 22

    TABLE = 23

    GATHER = 24

    LEFT = 25

    RIGHT = 26

    SCATTER = 27

    WEIGHTS = 28

    SETTLE = 29

    COMBINE = 30

    CONVERT = 31

    RESCALE = 32

    STORE = 33

    OUTPUT = 34

class Cached(enum.IntEnum):
    DEVIATION = 0

    HALF = 1

    SCALE = 2

    INSIDE = 3

    MEAN = 4

    SERIES = 5

    WEIGHTS = 6

class Function(enum.IntEnum):
    ERF = 0

    GELU = 1

    SINE = 2

    COSINE = 3

    EXPONENTIAL = 4

    POLYNOMIAL = 5

class Rectifier:
    def __init__(
        self,
        *,
        negative_slope: float = ...,
        positive_slope: float = ...,
        deviation_at: int = ...,
        signed_covariance: bool = ...,
        rounded: bool = ...,
        trained_gain: float = ...,
    ) -> None: ...
    @property
    def negative_slope(self) -> float: ...
    @property
    def positive_slope(self) -> float: ...
    @property
    def deviation_at(self) -> int: ...
    @property
    def signed_covariance(self) -> bool: ...
    @property
    def rounded(self) -> bool: ...
    @property
    def trained_gain(self) -> float: ...

class Input:
    def __init__(
        self,
        *,
        size: Sequence[int] = ...,
        data: int = ...,
        channels: int = ...,
        half_at: int = ...,
        sizes_matter: bool = ...,
    ) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def data(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def half_at(self) -> int: ...
    @property
    def sizes_matter(self) -> bool: ...
    def __repr__(self) -> str: ...

class Layer:
    def __init__(
        self,
        *,
        in_size: Sequence[int] = ...,
        out_size: Sequence[int] = ...,
        kernel: Sequence[int] = ...,
        stride: Sequence[int] = ...,
        dilation: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        circular: Sequence[bool] = ...,
        weight: float = ...,
        bias: float = ...,
        weight_rate: float = ...,
        bias_rate: float = ...,
        half_in_at: int = ...,
        half_out_at: int = ...,
        unit_at: int = ...,
        activation: Rectifier | None = ...,
        number: int = ...,
    ) -> None: ...
    @property
    def in_size(self) -> list[int]: ...
    @property
    def out_size(self) -> list[int]: ...
    @property
    def kernel(self) -> list[int]: ...
    @property
    def stride(self) -> list[int]: ...
    @property
    def dilation(self) -> list[int]: ...
    @property
    def padding(self) -> list[int]: ...
    @property
    def circular(self) -> list[bool]: ...
    @property
    def weight(self) -> float: ...
    @property
    def bias(self) -> float: ...
    @property
    def weight_rate(self) -> float: ...
    @property
    def bias_rate(self) -> float: ...
    @property
    def half_in_at(self) -> int: ...
    @property
    def half_out_at(self) -> int: ...
    @property
    def unit_at(self) -> int: ...
    @property
    def activation(self) -> Rectifier | None: ...
    @property
    def number(self) -> int: ...
    def __repr__(self) -> str: ...

class Rectified:
    def __init__(self, *, size: Sequence[int] = ..., activation: Rectifier = ...) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def activation(self) -> Rectifier: ...
    def __repr__(self) -> str: ...

class Smooth:
    def __init__(
        self,
        *,
        size: Sequence[int] = ...,
        function: Function = ...,
        hermite_terms: Sequence[float] = ...,
        deviation_at: int = ...,
        half_at: int = ...,
        rounded: bool = ...,
        trained_gain: float = ...,
        gain_terms: Sequence[float] = ...,
    ) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def function(self) -> Function: ...
    @property
    def hermite_terms(self) -> list[float]: ...
    @property
    def deviation_at(self) -> int: ...
    @property
    def half_at(self) -> int: ...
    @property
    def rounded(self) -> bool: ...
    @property
    def trained_gain(self) -> float: ...
    @property
    def gain_terms(self) -> list[float]: ...
    def __repr__(self) -> str: ...

class SeriesTable:
    def __init__(
        self,
        *,
        orders: Sequence[int] = ...,
        degree: int = ...,
        piece: float = ...,
        coefficients: Sequence[float] = ...,
        jumps: Sequence[float] = ...,
        closed: Sequence[float] = ...,
    ) -> None: ...
    @property
    def orders(self) -> list[int]: ...
    @property
    def degree(self) -> int: ...
    @property
    def piece(self) -> float: ...
    @property
    def coefficients(self) -> list[float]: ...
    @property
    def jumps(self) -> list[float]: ...
    @property
    def closed(self) -> list[float]: ...

class Series:
    def __init__(
        self,
        *,
        size: Sequence[int] = ...,
        table: SeriesTable | None = ...,
        series_at: int = ...,
        deviation_at: int = ...,
        half_at: int = ...,
        rounded: bool = ...,
    ) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def table(self) -> SeriesTable: ...
    @property
    def series_at(self) -> int: ...
    @property
    def deviation_at(self) -> int: ...
    @property
    def half_at(self) -> int: ...
    @property
    def rounded(self) -> bool: ...
    def __repr__(self) -> str: ...

class Normalize:
    def __init__(
        self, *, size: Sequence[int] = ..., scale_at: int = ..., weight_rate: float = ..., bias_rate: float = ...
    ) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def scale_at(self) -> int: ...
    @property
    def weight_rate(self) -> float: ...
    @property
    def bias_rate(self) -> float: ...
    def __repr__(self) -> str: ...

class Product:
    def __init__(self, *, size: Sequence[int] = ..., first_half_at: int = ..., second_half_at: int = ...) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def first_half_at(self) -> int: ...
    @property
    def second_half_at(self) -> int: ...
    def __repr__(self) -> str: ...

class Fill:
    def __init__(self, *, size: Sequence[int] = ..., square: float = ...) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def square(self) -> float: ...
    def __repr__(self) -> str: ...

class Pool:
    def __init__(
        self,
        *,
        in_size: Sequence[int] = ...,
        out_size: Sequence[int] = ...,
        axis: int = ...,
        kernel: int = ...,
        stride: int = ...,
        padding: int = ...,
        wide: bool = ...,
        weights: Sequence[float] = ...,
        totals: Sequence[float] = ...,
        inside_at: int = ...,
        mean_at: int = ...,
    ) -> None: ...
    @property
    def in_size(self) -> list[int]: ...
    @property
    def out_size(self) -> list[int]: ...
    @property
    def axis(self) -> int: ...
    @property
    def kernel(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def padding(self) -> int: ...
    @property
    def wide(self) -> bool: ...
    @property
    def weights(self) -> list[float]: ...
    @property
    def totals(self) -> list[float]: ...
    @property
    def inside_at(self) -> int: ...
    @property
    def mean_at(self) -> int: ...
    def __repr__(self) -> str: ...

class Select:
    def __init__(
        self,
        *,
        in_size: Sequence[int] = ...,
        out_size: Sequence[int] = ...,
        in_stride: Sequence[int] = ...,
        axis: int = ...,
        index: Sequence[int] = ...,
        half_in_at: int = ...,
    ) -> None: ...
    @property
    def in_size(self) -> list[int]: ...
    @property
    def out_size(self) -> list[int]: ...
    @property
    def in_stride(self) -> list[int]: ...
    @property
    def axis(self) -> int: ...
    @property
    def index(self) -> list[int]: ...
    @property
    def half_in_at(self) -> int: ...
    def __repr__(self) -> str: ...

class Map:
    def __init__(
        self,
        *,
        in_size: Sequence[int] = ...,
        out_size: Sequence[int] = ...,
        axis: int = ...,
        wide: bool = ...,
        matrix: Sequence[float] = ...,
        first: Sequence[int] = ...,
        last: Sequence[int] = ...,
        totals: Sequence[float] = ...,
        inside_at: int = ...,
        mean_at: int = ...,
    ) -> None: ...
    @property
    def in_size(self) -> list[int]: ...
    @property
    def out_size(self) -> list[int]: ...
    @property
    def axis(self) -> int: ...
    @property
    def wide(self) -> bool: ...
    @property
    def matrix(self) -> list[float]: ...
    @property
    def first(self) -> list[int]: ...
    @property
    def last(self) -> list[int]: ...
    @property
    def totals(self) -> list[float]: ...
    @property
    def inside_at(self) -> int: ...
    @property
    def mean_at(self) -> int: ...
    def __repr__(self) -> str: ...

class Reduce:
    def __init__(
        self,
        *,
        in_size: Sequence[int] = ...,
        out_size: Sequence[int] = ...,
        out_stride: Sequence[int] = ...,
        factor: float = ...,
    ) -> None: ...
    @property
    def in_size(self) -> list[int]: ...
    @property
    def out_size(self) -> list[int]: ...
    @property
    def out_stride(self) -> list[int]: ...
    @property
    def factor(self) -> float: ...
    def __repr__(self) -> str: ...

class Convert:
    def __init__(self, *, size: Sequence[int] = ..., half_at: int = ...) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def half_at(self) -> int: ...
    def __repr__(self) -> str: ...

class Rescale:
    def __init__(self, *, size: Sequence[int] = ..., ratio_at: int = ..., half_at: int = ...) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def ratio_at(self) -> int: ...
    @property
    def half_at(self) -> int: ...
    def __repr__(self) -> str: ...

class Store:
    def __init__(
        self,
        *,
        size: Sequence[int] = ...,
        what: Cached = ...,
        target_at: int = ...,
        factor: float = ...,
        eps: float = ...,
        unit_at: int = ...,
        mean_over: Sequence[bool] = ...,
        table: SeriesTable | None = ...,
        number: int = ...,
    ) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def what(self) -> Cached: ...
    @property
    def target_at(self) -> int: ...
    @property
    def factor(self) -> float: ...
    @property
    def eps(self) -> float: ...
    @property
    def unit_at(self) -> int: ...
    @property
    def mean_over(self) -> list[bool]: ...
    @property
    def table(self) -> SeriesTable: ...
    @property
    def number(self) -> int: ...
    def __repr__(self) -> str: ...

class Plain:
    def __init__(self, *, size: Sequence[int] = ...) -> None: ...
    @property
    def size(self) -> list[int]: ...
    def __repr__(self) -> str: ...

class Matrix:
    def __init__(
        self,
        *,
        rows: int = ...,
        columns: int = ...,
        cached_at: int = ...,
        data: int = ...,
        transposed: bool = ...,
        numbers: Sequence[float] = ...,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def cached_at(self) -> int: ...
    @property
    def data(self) -> int: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def numbers(self) -> list[float]: ...
    def __repr__(self) -> str: ...

class Weights:
    def __init__(
        self,
        *,
        tokens: int = ...,
        factor: float = ...,
        softmax: bool = ...,
        low: float = ...,
        high: float = ...,
        mask: Sequence[float] = ...,
        target_at: int = ...,
    ) -> None: ...
    @property
    def tokens(self) -> int: ...
    @property
    def factor(self) -> float: ...
    @property
    def softmax(self) -> bool: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def mask(self) -> list[float]: ...
    @property
    def target_at(self) -> int: ...
    def __repr__(self) -> str: ...

class Lookup:
    def __init__(self, *, size: Sequence[int] = ..., data: int = ..., padding: float = ...) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def data(self) -> int: ...
    @property
    def padding(self) -> float: ...
    def __repr__(self) -> str: ...

class Table:
    def __init__(
        self, *, size: Sequence[int] = ..., covariance: Sequence[float] = ..., tangent: Sequence[float] = ...
    ) -> None: ...
    @property
    def size(self) -> list[int]: ...
    @property
    def covariance(self) -> list[float]: ...
    @property
    def tangent(self) -> list[float]: ...
    def __repr__(self) -> str: ...

class Instruction:
    def __init__(
        self,
        kind: Kind,
        operation: int,
        *,
        out_slot: int = -1,
        in_slot: int = -1,
        out_offset: Sequence[int] = [0, 0, 0],
        in_offset: Sequence[int] = [0, 0, 0],
        factor: float = 1.0,
        theta_in: bool = False,
        theta_out: bool = False,
        covariance_in: bool = False,
        covariance_out: bool = False,
        cache_only: bool = False,
        whole: int = 0,
        chained: bool = False,
    ) -> None: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def operation(self) -> int: ...
    @property
    def out_slot(self) -> int: ...
    @property
    def in_slot(self) -> int: ...
    @property
    def out_offset(self) -> list[int]: ...
    @property
    def in_offset(self) -> list[int]: ...
    @property
    def factor(self) -> float: ...
    @property
    def theta_in(self) -> bool: ...
    @property
    def theta_out(self) -> bool: ...
    @property
    def covariance_in(self) -> bool: ...
    @property
    def covariance_out(self) -> bool: ...
    @property
    def cache_only(self) -> bool: ...
    @property
    def whole(self) -> int: ...
    @property
    def chained(self) -> bool: ...
    @chained.setter
    def chained(self, arg: bool, /) -> None: ...
    def __repr__(self) -> str: ...

class Tape:
    def __init__(
        self,
        operations: Sequence[
            Input
            | Layer
            | Rectified
            | Smooth
            | Series
            | Normalize
            | Product
            | Fill
            | Pool
            | Select
            | Map
            | Reduce
            | Convert
            | Rescale
            | Store
            | Plain
            | Matrix
            | Weights
            | Lookup
            | Table
        ],
        instructions: Sequence[Instruction],
        batch: int,
        slots: Sequence[int],
        accumulators: int,
        accumulator_positions: int,
        cache_size: int,
        data_sizes: Sequence[int],
    ) -> None: ...
    def with_gains(self, layers: Sequence[Sequence[float]]) -> Tape: ...
    @property
    def operations(
        self,
    ) -> list[
        Input
        | Layer
        | Rectified
        | Smooth
        | Series
        | Normalize
        | Product
        | Fill
        | Pool
        | Select
        | Map
        | Reduce
        | Convert
        | Rescale
        | Store
        | Plain
        | Matrix
        | Weights
        | Lookup
        | Table
    ]: ...
    @property
    def instructions(self) -> list[Instruction]: ...
    @property
    def batch(self) -> int: ...
    @property
    def accumulators(self) -> int: ...
    @property
    def accumulator_positions(self) -> int: ...
    @property
    def cache_size(self) -> int: ...
    @property
    def data_size(self) -> int: ...
    @property
    def slots(self) -> list[int]: ...
    def __str__(self) -> str: ...

NOTHING: int = -1

AXES: int = 3

@overload
def cross(
    tape: Tape,
    *,
    data1: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    cache1: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    data2: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    cache2: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    nngp: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device="cpu")] | None,
    ntk: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device="cpu")] | None,
    upper: bool,
    first_row: int,
    first_column: int,
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def cross(
    tape: Tape,
    *,
    data1: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    cache1: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    data2: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    cache2: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    nngp: Annotated[NDArray[numpy.float64], dict(shape=(None, None), device="cpu")] | None,
    ntk: Annotated[NDArray[numpy.float64], dict(shape=(None, None), device="cpu")] | None,
    upper: bool,
    first_row: int,
    first_column: int,
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def read(
    numbers: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    *,
    sizes: Sequence[int],
    scalable: bool,
    bias: float,
    data: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")] | None,
    squares: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu")],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def read(
    numbers: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    *,
    sizes: Sequence[int],
    scalable: bool,
    bias: float,
    data: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")] | None,
    squares: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu")],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def read(
    numbers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    *,
    sizes: Sequence[int],
    scalable: bool,
    bias: float,
    data: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")] | None,
    squares: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu")],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def read(
    numbers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    *,
    sizes: Sequence[int],
    scalable: bool,
    bias: float,
    data: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")] | None,
    squares: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu")],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def self(
    tape: Tape,
    *,
    numbers: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    cache_known: bool,
    cache: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    nngp: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    ntk: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def self(
    tape: Tape,
    *,
    numbers: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    cache_known: bool,
    cache: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    nngp: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ntk: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def self(
    tape: Tape,
    *,
    numbers: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    cache_known: bool,
    cache: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    nngp: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ntk: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def self(
    tape: Tape,
    *,
    numbers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    cache_known: bool,
    cache: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    nngp: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    ntk: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def self(
    tape: Tape,
    *,
    numbers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    cache_known: bool,
    cache: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    nngp: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ntk: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
@overload
def self(
    tape: Tape,
    *,
    numbers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    units: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    cache_known: bool,
    cache: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    nngp: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ntk: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
    progress: object | None,
) -> None: ...
def has_adjoint(tape: Tape, step: Instruction) -> bool: ...
def pull_back(
    tape: Tape,
    *,
    segments: Sequence[int],
    data1: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    cache1: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    data2: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    cache2: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    products: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None, None, None, None), order="C", device="cpu", writable=False)
    ],
    nngp: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)] | None,
    ntk: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)] | None,
    to_data: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    to_cache: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    to_products: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu")],
    to_gains: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu")] | None,
    threads: int,
) -> None: ...
def roofline(single: bool, seconds: float) -> float: ...
