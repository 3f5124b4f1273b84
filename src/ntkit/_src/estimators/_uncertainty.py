"""Standard deviations and intervals of predictions that hold for new points, from errors on points left out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit._src.common import check_number
from ntkit.errors import InputError


@dataclass(frozen=True, eq=False)
class Calibration:
    r"""How large errors on points left out were, in units of the standard deviation that the process gave these points.

    The deviation s(x), noise included, is right up to the scale of the kernel, which no prediction depends on. With the errors
    e_i the most likely scale is :math:`c = (\frac1m \sum_i e_i^2 / s_i^2)^{1/2}`; where each point is left out alone, in closed
    form, :math:`1/s_i^2 = (A^{-1})_{ii}`. Without any assumption about the noise, at least the share q of new points lies within
    :math:`f(x) \pm z_q\, s(x)`, with z_q the :math:`\lceil (m + 1) q \rceil`-th smallest of :math:`|e_i| / s_i` [1]_, [2]_.

    References
    ----------
    .. [1] Barber, Candès, Ramdas, Tibshirani, "Predictive inference with the jackknife+", 2021.
    .. [2] Lei, G'Sell, Rinaldo, Tibshirani, Wasserman, "Distribution-free predictive inference for regression", 2018.
    """

    scale: NDArray[np.float64]  # c, shape () or (k,)
    ratios: NDArray[np.float64]  # |e_i| / s_i, sorted, shape (m,) or (m, k)

    @classmethod
    def of(cls, errors: NDArray[Any], deviations: NDArray[Any]) -> Calibration | None:
        """Compare errors, shape (m,) or (m, k), with deviations, shape (m,); None if there are none."""
        each = deviations if errors.ndim == 1 else deviations[:, None]
        ratios = np.abs(errors) / np.where(each > 0, each, 1.0)
        if not len(ratios) or not np.isfinite(ratios).all():
            return None
        return cls(np.asarray(np.sqrt((ratios**2).mean(0))), np.sort(ratios, axis=0))

    def quantile(self, level: Any) -> NDArray[np.float64]:
        """Return z_q, shape () or (k,); infinite if there are too few points for the level."""
        share = check_number("interval", level)
        if not 0 < share < 1:
            raise InputError(f"interval must lie between 0 and 1, such as 0.9. Got {level!r}.")
        place = math.ceil((len(self.ratios) + 1) * share) - 1
        return np.asarray(self.ratios[place] if place < len(self.ratios) else np.full(self.scale.shape, math.inf))
