"""Gram matrices of any size: a tile plan, executed locally or on a cluster, into memory or a resumable store."""

import sys
from types import ModuleType
from typing import Any

from ._cluster_kernel import ClusterKernel
from ._files import locked, scratch_folder, write_atomically
from ._fingerprint import Fingerprinted, fingerprint, kernel_fingerprint
from ._gram import gram, open_gram
from ._operator import DenseGram, GramOperator, KernelGram, StoredGram
from ._plan import Tile, TilePlan
from ._progress import GramProgress
from ._resources import available_memory, bytes_text, check_memory, free_disk, seconds_text

__all__ = [
    "ClusterKernel",
    "DenseGram",
    "Fingerprinted",
    "GramOperator",
    "GramProgress",
    "KernelGram",
    "StoredGram",
    "Tile",
    "TilePlan",
    "available_memory",
    "bytes_text",
    "check_memory",
    "fingerprint",
    "free_disk",
    "gram",
    "kernel_fingerprint",
    "locked",
    "open_gram",
    "scratch_folder",
    "seconds_text",
    "write_atomically",
]


class _Callable(ModuleType):
    """``ntkit.gram`` is both a function and this folder: importing the folder by name again may replace the function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return gram(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
