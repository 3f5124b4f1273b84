"""Gram matrices of any size: a tile plan, executed locally or on a cluster, into memory or a resumable store."""

from ._files import free_disk, locked, scratch_folder, write_atomically
from ._fingerprint import fingerprint, kernel_fingerprint
from ._gram import ClusterKernel, gram, open_gram
from ._operator import DenseGram, GramOperator, KernelGram, StoredGram
from ._plan import Tile
