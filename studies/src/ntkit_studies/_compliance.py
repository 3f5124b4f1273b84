"""Solid isotropic material with penalisation: the compliance of a density on a grid, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve
from scipy.special import expit

__all__ = ["Beam", "element_stiffness", "with_volume"]

Array = NDArray[Any]

_POISSON = 0.3
_LEAST = 1e-6  # stiffness of empty elements, so that the system stays regular
_POWER = 3.0


def element_stiffness() -> Array:
    r"""Return the stiffness of one square bilinear element of plane stress with modulus one, shape (8, 8).

    :math:`\int B^T D B` by Gauss's rule with two points along each axis, which is exact; corners go around from the lower left.
    """
    elastic = np.array([[1, _POISSON, 0], [_POISSON, 1, 0], [0, 0, (1 - _POISSON) / 2]]) / (1 - _POISSON**2)
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    stiffness = np.zeros((8, 8))
    for xi in (-(3**-0.5), 3**-0.5):
        for eta in (-(3**-0.5), 3**-0.5):
            # Slopes of the four shape functions (1 + a xi)(1 + b eta) / 4 on a square of side one, half of whose side is 1/2.
            slopes = np.array([[a * (1 + b * eta), b * (1 + a * xi)] for a, b in corners]) / 2
            strain = np.zeros((3, 8))
            strain[0, ::2], strain[1, 1::2] = slopes[:, 0], slopes[:, 1]
            strain[2, ::2], strain[2, 1::2] = slopes[:, 1], slopes[:, 0]
            stiffness += strain.T @ elastic @ strain / 4
    return stiffness


@dataclass(frozen=True)
class Beam:
    """Half of a beam on two supports with a load in its middle, of nx by ny square elements.

    Attributes
    ----------
    nx, ny
        Elements along the beam and across it.
    """

    nx: int
    ny: int

    @property
    def elements(self) -> int:
        """How many elements there are; densities have shape (elements,), row by row from the bottom."""
        return self.nx * self.ny

    def _freedoms(self) -> Array:
        """Return the eight degrees of freedom of each element, shape (elements, 8)."""
        row, column = np.divmod(np.arange(self.elements), self.nx)
        lower_left = row * (self.nx + 1) + column
        nodes = np.stack([lower_left, lower_left + 1, lower_left + self.nx + 2, lower_left + self.nx + 1], axis=1)
        return np.stack([2 * nodes, 2 * nodes + 1], axis=2).reshape(self.elements, 8)

    def compliance(self, density: Array) -> tuple[float, Array]:
        r"""Return the compliance :math:`C = U^T F`, :math:`K(y) U = F`, and its gradient by density, shape (elements,).

        Elements have the modulus :math:`y^3` (and a little), so :math:`\partial C / \partial y_e = -3 y_e^2\, u_e^T k u_e`.
        (Golikov et al. 2022, section 6.2, where :math:`U^T F U` is an error.)
        """
        stiffness, freedoms = element_stiffness(), self._freedoms()
        modulus = _LEAST + (1 - _LEAST) * density**_POWER
        size = 2 * (self.nx + 1) * (self.ny + 1)
        rows, columns = np.repeat(freedoms, 8, axis=1).ravel(), np.tile(freedoms, (1, 8)).ravel()
        matrix = coo_matrix(
            ((modulus[:, None] * stiffness.ravel()).ravel(), (rows, columns)), shape=(size, size)
        ).tocsc()
        force = np.zeros(size)
        force[2 * (self.nx + 1) * self.ny + 1] = -1.0  # down at the upper left corner, the middle of the whole beam
        symmetry = 2 * (self.nx + 1) * np.arange(self.ny + 1)  # no sideways motion in the plane of symmetry
        support = np.array([2 * self.nx + 1])  # no vertical motion at the lower right corner
        free = np.setdiff1d(np.arange(size), np.concatenate([symmetry, support]))
        moved = np.zeros(size)
        moved[free] = spsolve(matrix[free][:, free], force[free])
        own = moved[freedoms]
        energy = np.einsum("ei,ij,ej->e", own, stiffness, own)
        return float(moved @ force), -(1 - _LEAST) * _POWER * density ** (_POWER - 1) * energy


def with_volume(pre: Array, volume: float) -> tuple[Array, Array]:
    """Return the density sigmoid(x + b), b such that its mean is the volume, and its slope, both of the shape of x.

    The gradient of a function of the density goes back to x as slope * (g - sum(slope g) / sum(slope)), since b moves with x.
    """
    wide = float(np.abs(pre).max()) + 40.0
    shift = brentq(lambda b: expit(pre + b).mean() - volume, -wide, wide, xtol=1e-13)
    density = expit(pre + shift)
    return density, density * (1 - density)
