"""A kernel whose matrices are computed on a Dask cluster."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from ntkit._src.kernels import Kernel

from ._gram import gram
from ._plan import default_tile

if TYPE_CHECKING:
    from distributed import Client

_LEAST_TILE = 64
_TILES_PER_THREAD = 4


class ClusterKernel(Kernel):
    """The same kernel, its matrices computed by the workers of a cluster: for whatever only calls ``kernel(x1, x2)``.

    Diagonals are computed in this process. Values are those of the kernel itself, on the CPU. The client is that of
    :func:`ntkit.gram`; ``"local"`` starts processes anew for each matrix.
    """

    def __init__(self, kernel: Kernel, client: Client | Literal["local"]) -> None:
        self.kernel, self.client = kernel, client

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        entries = len(x1) * len(x1 if x2 is None else x2)
        # Enough tiles for every thread, not smaller than what sending one costs.
        tile = max(_LEAST_TILE, math.ceil(math.sqrt(entries / (_TILES_PER_THREAD * self._threads()))))
        return gram(self.kernel, x1, x2, tile=min(tile, default_tile(x1, None)), client=self.client)

    def diag(self, x: Tensor) -> Tensor:
        return self.kernel.diag(x)

    def _threads(self) -> int:
        if isinstance(self.client, str):
            return os.cpu_count() or 1
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return max(1, sum(int(worker["nthreads"]) for worker in workers))
