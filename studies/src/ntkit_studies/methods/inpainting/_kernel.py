"""The kernel between pixels of an encoder-decoder, expanded from a small torus to images of any size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit import infinite_width
from ntkit.errors import InputError
from ntkit.extending import check_gram_memory

from ._encoder_decoder import Upsampling, encoder_decoder
from ._periodic_kernel import periodic_kernel

__all__ = ["InpaintingKernel"]

_SAME = 1e-13
_CHUNK = 2**22  # entries looked up at a time


@dataclass(frozen=True, eq=False, init=False)
class InpaintingKernel:
    r"""The kernel between pixels of an image that a network generates from stationary noise, for images of any size.

    With circular padding and a stationary prior, the position-resolved tangent kernel :math:`K[(i, j), (i', j')]` of a network
    that halves s times depends only on :math:`(i \bmod 2^s, j \bmod 2^s, i' - i, j' - j)`, and is one constant once
    :math:`|i' - i|` or :math:`|j' - j|` reaches :math:`2^s` (nearest up-sampling) or :math:`3 (2^s - 1) + 1` (bilinear). So the
    kernel of a small torus, of side :math:`2^{s+1}` or :math:`6 \cdot 2^s`, is that of every image (Radhakrishnan et al. 2021;
    Golikov et al. 2022, section 6.1.3), and between the pixels of an image it is a constant plus a sparse matrix.

    Parameters
    ----------
    module : nn.Module, optional
        A network from images (n, channels, H, W) to (n, 1, H, W). Whether its kernel has this structure is checked on the torus,
        and up to three levels on one of twice the side. Default None: :func:`encoder_decoder`.
    levels : int
        s, also for your own module. Default 3.
    upsampling : {"nearest", "bilinear"}
        Also for your own module, because it sets the reach. Default ``"nearest"``.
    same, other : float
        The prior: variance of a pixel and covariance of two. Default 1/300 and 1/400: noise that is uniform on [0, 0.1].
    last_convolution : bool
        Of :func:`encoder_decoder`, where no module is given. Default False.

    Attributes
    ----------
    period
        :math:`2^s`.
    reach
        The distance from which on the kernel is constant.
    constant
        That constant.
    table
        K at residues a, b and offsets, shape (period, period, 2 reach - 1, 2 reach - 1); the offset zero is in the middle.

    Examples
    --------
    >>> kernel = InpaintingKernel(levels=1)
    >>> kernel.period, kernel.reach, kernel.table.shape
    (2, 2, torch.Size([2, 2, 3, 3]))
    """

    levels: int
    upsampling: Upsampling
    period: int
    reach: int
    constant: float
    table: Tensor

    def __init__(
        self,
        module: nn.Module | None = None,
        levels: int = 3,
        upsampling: Upsampling = "nearest",
        *,
        same: float = 1 / 300,
        other: float = 1 / 400,
        last_convolution: bool = False,
    ) -> None:
        network = encoder_decoder(levels, upsampling, 1, last_convolution) if module is None else module
        period = 2**levels
        reach, side = (period, 2 * period) if upsampling == "nearest" else (3 * (period - 1) + 1, 6 * period)

        def torus(length: int) -> Tensor:
            channels = _channels(network)
            limit = infinite_width(network).with_prior("stationary", (channels, length, length), same=same, other=other)
            found = limit.ntk.positions().detach().double()
            if tuple(found.shape) != (length,) * 4:
                raise InputError(
                    f"the module must take images to images of the same size. For {length} x {length} pixels its kernel has the "
                    f"shape {tuple(found.shape)}."
                )
            return found

        tori = []
        if module is None and upsampling == "nearest":
            check_gram_memory(
                period**2, (2 * period - 1) ** 2, torch.float64, matrices=5, what=f"the kernel of {levels} levels"
            )
            table, constant = periodic_kernel(levels, last_convolution, same, other)
        else:
            tori = [torus(side)]
            table, constant = _read_table(tori[0], period, reach)
            if not _constant_beyond(tori[0], period, reach, constant):
                raise InputError(
                    f"with levels={levels} and upsampling={upsampling!r} the kernel of this network is "
                    "not one constant between distant pixels, so it has no expansion: an activation follows where pixels have "
                    "different variances. Take nearest up-sampling, or at most two levels of bilinear."
                )
        values = {
            "levels": levels,
            "upsampling": upsampling,
            "period": period,
            "reach": reach,
            "constant": constant,
            "table": table,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if module is not None:
            tori += [] if levels > 3 or side > 32 else [torus(2 * side)]
            if any(not self._explains(one) for one in tori):
                raise InputError(
                    f"the kernel of this module has no expansion with levels={levels} and upsampling={upsampling!r}: circular "
                    "padding throughout, selections of every second pixel and as many up-samplings by two are needed. Pass the "
                    "levels of the module, or a prior of data, whose kernel is computed pixel by pixel."
                )

    def dense(self, height: int, width: int) -> Tensor:
        """Return the kernel of a torus of these sides, multiples of the period, shape (height, width, height, width)."""
        everywhere = np.arange(height * width)
        return torch.from_numpy(self.block(height, width, everywhere, everywhere)).view(height, width, height, width)

    def block(
        self, height: int, width: int, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Give the kernel between pixels of a torus, as :meth:`sparse` does, as a full matrix of shape (m, n)."""
        self._check_torus(height, width)
        # Offsets between -side/2 and side/2; one beyond the reach reads the constant that the padding holds.
        padded = np.pad(self.table.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=self.constant)
        full = np.empty((len(rows), len(columns)))
        other = np.divmod(columns, width)
        for number, pixel in enumerate(rows):
            where = []
            for own, others, side in zip(divmod(int(pixel), width), other, (height, width), strict=True):
                offset = (others - own + side // 2) % side - side // 2
                where.append(np.clip(offset, -self.reach, self.reach) + self.reach)
            i, j = divmod(int(pixel), width)
            full[number] = padded[i % self.period, j % self.period][tuple(where)]
        return full

    def sparse(
        self, height: int, width: int, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> scipy.sparse.csr_array:
        """Return the kernel minus its constant between pixels of a torus, by their flat indices: a sparse matrix.

        Parameters
        ----------
        height, width
            Sides of the torus, multiples of ``period`` and at least those of the torus that the table was read from.
        rows, columns
            Shape (m,) and (n,); the result has shape (m, n).
        """
        self._check_torus(height, width)
        near = min(1.0, (2 * self.reach - 1) ** 2 / (height * width))
        # Values and column numbers, twice while the parts are joined: three floats per entry.
        check_gram_memory(
            len(rows), int(near * len(columns)) + 1, torch.float64, matrices=3, what="the kernel between near pixels"
        )
        flat = np.full(height * width, -1, np.int32)
        flat[columns] = np.arange(len(columns), dtype=np.int32)
        number = flat.reshape(height, width)
        differences = (self.table - self.constant).numpy()
        offsets = np.arange(1 - self.reach, self.reach)
        blocks = []
        for part in np.array_split(rows, -(-len(rows) * len(offsets) ** 2 // _CHUNK)):
            i, j = np.divmod(part, width)
            values = differences[i % self.period, j % self.period].reshape(len(part), -1)
            near_rows, near_columns = (i[:, None] + offsets) % height, (j[:, None] + offsets) % width
            other = number[near_rows[:, :, None], near_columns[:, None, :]].reshape(len(part), -1)
            kept = (other >= 0) & (np.abs(values) > _SAME * self.constant)
            starts = np.concatenate([[0], np.cumsum(kept.sum(1))])
            blocks.append(scipy.sparse.csr_array((values[kept], other[kept], starts), shape=(len(part), len(columns))))
        joined: scipy.sparse.csr_array = scipy.sparse.vstack(blocks, format="csr")
        joined.sort_indices()
        return joined

    def _check_torus(self, height: int, width: int) -> None:
        least = 2 * self.reach - 1
        if height % self.period or width % self.period or min(height, width) < least:
            raise InputError(
                f"the sides of the torus must be multiples of {self.period} and at least {least}. Got {height} x {width}."
            )

    def _explains(self, kernel: Tensor) -> bool:
        side = len(kernel)
        return torch.allclose(self.dense(side, side), kernel, rtol=1e-11, atol=0)


def _channels(module: nn.Module) -> int:
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            return layer.in_channels
    raise InputError("the module must have a Conv2d layer that reads the image. Found none.")


def _constant_beyond(kernel: Tensor, period: int, reach: int, constant: float) -> bool:
    """Return whether the kernel of every residue is constant at all offsets of at least ``reach`` on the torus."""
    side = len(kernel)
    offsets = torch.arange(side)
    far = torch.minimum(offsets, side - offsets) >= reach
    outside = far[:, None] | far
    for i in range(period):
        for j in range(period):
            values = kernel[i, j].roll((-i, -j), (0, 1))[outside]
            if bool(((values - constant).abs() > 1e-11 * abs(constant)).any()):
                return False
    return True


def _read_table(kernel: Tensor, period: int, reach: int) -> tuple[Tensor, float]:
    side = len(kernel)
    offsets = torch.arange(1 - reach, reach)
    rows = torch.arange(period)
    where = (rows[:, None] + offsets) % side  # (period, 2 reach - 1)
    table = kernel[
        rows[:, None, None, None], rows[None, :, None, None], where[:, None, :, None], where[None, :, None, :]
    ]
    return table.contiguous(), float(kernel[0, 0, side // 2, side // 2])
