from collections.abc import Callable, Sequence
from typing import Literal

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
    instructions: NDArray[np.int32],
    instruction_factors: NDArray[np.float64],
    slots: int,
    slot_positions: int,
    activation_positions: Sequence[int],
    data_sizes: Sequence[int],
    batch: int,
) -> Tape: ...
def cross(
    tape: Tape,
    data1: NDArray[np.float64],
    deviation1: NDArray[np.float64],
    data2: NDArray[np.float64],
    deviation2: NDArray[np.float64],
    inner: NDArray[np.float64],
    nngp: NDArray[np.float64],
    ntk: NDArray[np.float64] | None,
    upper: bool,
    first_row: int,
    first_column: int,
    threads: int,
    progress: Callable[[int], None] | None,
) -> None: ...
def self(
    tape: Tape,
    data: NDArray[np.float64],
    inner: NDArray[np.float64],
    deviation: NDArray[np.float64],
    nngp: NDArray[np.float64],
    ntk: NDArray[np.float64],
    threads: int,
    progress: Callable[[int], None] | None,
) -> None: ...
