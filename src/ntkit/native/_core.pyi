from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

class Tape: ...

def version() -> str: ...
def simd_level() -> Literal["avx512", "avx2", "neon", "baseline"]: ...
def compiler() -> str: ...
def compiler_version() -> str: ...
def make_tape(
    operations: NDArray[np.int32],
    constants: NDArray[np.float64],
    factors: Sequence[Sequence[float]],
    counts: Sequence[Sequence[float]],
    instructions: NDArray[np.int32],
    instruction_factors: NDArray[np.float64],
    sizes: Sequence[int],
    slot_positions: Sequence[int],
    data_sizes: Sequence[int],
) -> Tape: ...
def cross(
    tape: Tape,
    data1: NDArray[Any],
    own1: NDArray[Any],
    data2: NDArray[Any],
    own2: NDArray[Any],
    products: NDArray[Any],
    nngp: NDArray[Any] | None,
    ntk: NDArray[Any] | None,
    upper: bool,
    first_row: int,
    first_column: int,
    threads: int,
    progress: Callable[[int], None] | None,
) -> None: ...
def read(
    numbers: NDArray[Any],
    sizes: Sequence[int],
    scalable: bool,
    bias: float,
    data: NDArray[Any] | None,
    squares: NDArray[np.float64],
    scale: NDArray[np.float64],
    threads: int,
    progress: Callable[[int], None] | None,
) -> None: ...
def self(
    tape: Tape,
    numbers: NDArray[Any],
    scale: NDArray[np.float64],
    products: NDArray[Any],
    own_known: bool,
    own: NDArray[Any],
    nngp: NDArray[Any],
    ntk: NDArray[Any],
    threads: int,
    progress: Callable[[int], None] | None,
) -> None: ...
def roofline(single: bool, seconds: float) -> float: ...
