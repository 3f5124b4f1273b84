"""The sums to which a method adds the parts of a kernel: a matrix, or its diagonal."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ntkit._src.common import check_gram_memory, mirror_upper

from ._survey import Survey

Block = tuple[slice, slice]  # rows, outputs


class Total:
    """A kernel as the sum of the contributions of single parameters to blocks of rows and outputs.

    Parameters with the same key are added up: ``values`` by key are (n1, c, n2, c) if the outputs are kept separate, otherwise
    (n1, n2).
    """

    def __init__(self, survey: Survey, n1: int, n2: int, keys: Mapping[str, str]) -> None:
        self._outputs, self._full, self.keys = survey.outputs, survey.network.full, keys
        size = (n1, self._outputs, n2, self._outputs) if self._full else (n1, n2)
        apart, like = self._outputs if self._full else 1, survey.like
        matrices = len(set(keys.values()))
        check_gram_memory(n1 * apart, n2 * apart, like.dtype, like.device, matrices=matrices)
        self.values = {key: like.new_zeros(size) for key in dict.fromkeys(keys.values())}

    def add(self, name: str, value: Tensor, first: Block, second: Block) -> None:
        """Add a parameter's kernel between two blocks: for each pair of outputs, or summed over outputs."""
        target = self.values[self.keys[name]]
        if self._full:
            target[first[0], first[1], second[0], second[1]] += value
        else:
            target[first[0], second[0]] += value / self._outputs

    def finish(self, symmetric: bool) -> dict[str, Tensor]:
        """Return the matrices; for a symmetric one, only the lower triangle needs to have been added."""
        matrices = {key: value.flatten(2).flatten(0, 1) if self._full else value for key, value in self.values.items()}
        if symmetric:
            return {key: mirror_upper(matrix.mT).mT for key, matrix in matrices.items()}
        return matrices


class Diagonal:
    """The diagonal of a kernel, summed likewise; ``value`` is (n, c) if the outputs are kept separate, otherwise (n,)."""

    def __init__(self, survey: Survey, n: int) -> None:
        self._outputs, self._full = survey.outputs, survey.network.full
        self.value = survey.like.new_zeros((n, self._outputs) if self._full else (n,))

    def add(self, norms: Tensor, rows: slice, outputs: slice) -> None:
        """Add squared norms (n, s) of the derivatives of a block's outputs."""
        if self._full:
            self.value[rows, outputs] += norms
        else:
            self.value[rows] += norms.sum(1) / self._outputs


def slices(n: int, step: int, stop: int | None = None) -> list[slice]:
    """Split range(n), or the part of it whose slices start before ``stop``, into slices."""
    return [slice(i, min(i + step, n)) for i in range(0, n if stop is None else stop, step)]
