"""Coordinates as cosines and sines: the embedding that lets networks learn high frequencies."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ntkit._src.common import check_choice, check_integer, check_number, shown
from ntkit.errors import InputError

Kind = Literal["basic", "positional", "gaussian"]


class FourierFeatures(nn.Module):
    r"""Embeds coordinates as :math:`z(x) = [\cos(2 \pi B x), \sin(2 \pi B x)]` with frequencies B that are never trained.

    The embedding has constant norm and :math:`z(x)^T z(x')` depends only on :math:`x - x'`, so the kernel of a
    fully connected network after it is translation invariant, and B sets how fast its spectrum decays (Tancik et al. 2020
    [1]_; Golikov et al. 2022 [2]_, section 6.2; in eq. 114 the cosine is of :math:`2 \pi k b (x - x')`). As the layer is fixed,
    it runs before any module: its kernels, finite or infinite, are those of the module at z(x).

    Parameters
    ----------
    dim : int
        d, the number of coordinates of a point.
    kind : {"basic", "positional", "gaussian"}
        ``"basic"``: every coordinate once, B the identity. ``"positional"``: every coordinate at the frequencies
        :math:`\sigma^{j / M}`, j = 0, ..., M - 1. ``"gaussian"``: M rows of independent :math:`N(0, \sigma^2)`. Default
        ``"gaussian"``.
    size : int, optional
        M. Needed unless ``"basic"``, which has none. Default None.
    scale : float, optional
        :math:`\sigma`; at least 1 for ``"positional"``. Frequencies far above those that the training points resolve make the
        network predict noise between them: choose the scale on held-out points. Needed unless ``"basic"``. Default None.
    generator : torch.Generator, optional
        Generator of the Gaussian frequencies. Default None: torch's global one.

    Attributes
    ----------
    frequencies : Tensor of shape (M', d)
        B, a buffer; M' is d for ``"basic"``, d M for ``"positional"`` and M for ``"gaussian"``.
    out_features : int
        2 M', the length of z.

    See Also
    --------
    ntkit.diagnostics.frequency_course : Which frequencies a kernel has learnt, over time.

    References
    ----------
    .. [1] Tancik et al., "Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains", 2020.
    .. [2] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> embed = ntkit.layers.FourierFeatures(2, "gaussian", size=64, scale=4.0, generator=torch.Generator().manual_seed(0))
    >>> net = nn.Sequential(embed, nn.Linear(embed.out_features, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> ntk = ntkit.infinite_width(net).ntk
    >>> x = torch.rand(5, 2, dtype=torch.float64)
    >>> torch.allclose(ntk(x), ntk(x + 0.3))
    True
    """

    frequencies: Tensor

    def __init__(
        self,
        dim: int,
        kind: Kind = "gaussian",
        size: int | None = None,
        scale: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        _check(dim, kind, size, scale, generator)
        self.dim, self.kind, self.size, self.scale = dim, kind, size, scale
        # float64, so that float64 coordinates are embedded to all digits; the buffer follows .to() like any other.
        if size is None or scale is None:
            frequencies = torch.eye(dim, dtype=torch.float64)
        elif kind == "positional":
            ladder = float(scale) ** (torch.arange(size, dtype=torch.float64) / size)
            frequencies = torch.kron(ladder[:, None], torch.eye(dim, dtype=torch.float64))
        else:
            frequencies = scale * torch.randn(size, dim, generator=generator, dtype=torch.float64)
        self.register_buffer("frequencies", frequencies)
        self.out_features = 2 * len(frequencies)

    def forward(self, x: Tensor) -> Tensor:
        """Embed points of shape (..., d) as (..., 2 M'), in the dtype of the points."""
        angle = 2 * math.pi * x  # floating point, even for integer coordinates
        phase = angle @ self.frequencies.to(angle.dtype).T
        return torch.cat([torch.cos(phase), torch.sin(phase)], dim=-1)

    def extra_repr(self) -> str:
        """Return the arguments."""
        rest = "" if self.kind == "basic" else f", size={self.size}, scale={self.scale}"
        return f"{self.dim}, {self.kind!r}{rest}"


def _check(dim: int, kind: str, size: int | None, scale: float | None, generator: torch.Generator | None) -> None:
    check_choice("kind", kind, get_args(Kind))
    check_integer("dim", dim, 1)
    if (kind == "basic") != (size is None) or (kind == "basic") != (scale is None):
        needs = "has neither size nor scale" if kind == "basic" else "needs size and scale"
        raise InputError(f"the kind {kind!r} {needs}. Got size={size!r}, scale={shown(scale)}.")
    if generator is not None and kind != "gaussian":
        raise InputError(f"only the kind 'gaussian' draws its frequencies. Got a generator for {kind!r}.")
    if kind != "basic":
        check_integer("size", size, 1)
        # The scale of "positional" is the ratio of the highest frequency to the lowest.
        check_number("scale", scale, *((1.0,) if kind == "positional" else ()), positive=kind == "gaussian")
