"""Any elementwise function as a layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Elementwise(nn.Module):
    """Any elementwise function as a layer; its Gaussian expectations are computed by quadrature.

    Parameters
    ----------
    function
        The function: torch in, torch out, the same on every entry, differentiable.
    kinks
        Points where the function or one of its first two derivatives jumps, to all digits. Kinks between polynomials of degree
        at most three cost nothing, nor does one at zero between powers of z, such as that of ``relu(z)**4``: these functions
        have a closed form. Other smooth functions, with a kink at zero or without, take a second or so for each pair of
        ranges of variances (a factor of 16 each), once in a process, and some hundred multiplications an entry after that. Kinks
        elsewhere make the kernel slower, since its entries are then integrated one by one; so does quick growth, such as that
        of exp(z^2 / 10).

    Raises
    ------
    QuadratureError
        By the kernel: if E[f(u)^2] or E[f'(u)^2] diverges for the variances at hand, or if the estimated relative error of an
        expectation exceeds 1e-6. An error between 1e-10 and 1e-6 is a :class:`~ntkit.errors.QuadratureWarning`.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> bump = ntkit.Elementwise(lambda z: torch.exp(-z * z))
    >>> net = nn.Sequential(nn.Linear(2, 64), bump, nn.Linear(64, 1))
    >>> ntkit.infinite_width(net).nngp(torch.eye(2, dtype=torch.float64))
    tensor([[0.8944, 0.6667],
            [0.6667, 0.8944]], dtype=torch.float64)
    """

    def __init__(self, function: Callable[[Tensor], Tensor], kinks: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.function = function
        self.kinks = tuple(float(kink) for kink in kinks)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(x)

    def extra_repr(self) -> str:
        """Name the function."""
        return getattr(self.function, "__name__", repr(self.function))
