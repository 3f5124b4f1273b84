"""What the tangent hierarchy needs to know about a network: contractions of its second- to fourth-order kernels."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

__all__ = ["HierarchySource"]


class HierarchySource(Protocol):
    r"""Expected kernels of the hierarchy (Chen, He and Su 2020, eq. 3), bound to the n training inputs x_i at creation.

    With g(x) the gradient of f(x) with respect to the parameters,

    * K2(x, x') = g(x) . g(x'),
    * K3(x, x', x_i) is the derivative of K2(x, x') along g(x_i),
    * K4(x, x', x_i, x_j) is the derivative of K3(x, x', x_i) along g(x_j), where g(x_i) moves too.

    K4 is symmetric in x and x' but in general not in i and j. In gradient flow i belongs to the later of two times: K3 is
    integrated against the residual at time u and is itself moved by the residuals at the times v <= u, which j carries.

    No method forms a tensor of order three or four. Batches have the shape and dtype of the training inputs; the results
    follow the dtype.
    """

    def second(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return E K2(x1_a, x2_b), shape (n1, n2); ``x2=None`` means ``x2 = x1``."""

    def second_diag(self, x: Tensor) -> Tensor:
        """Return E K2(x_a, x_a), shape (n1,)."""

    def third(self, x1: Tensor, x2: Tensor | None, u: Tensor) -> Tensor:
        """Return sum_i u_i E K3(x1_a, x2_b, x_i), shape (n1, n2), for u of shape (n,)."""

    def third_diag(self, x: Tensor, u: Tensor) -> Tensor:
        """Return sum_i u_i E K3(x_a, x_a, x_i), shape (n1,)."""

    def fourth(self, x1: Tensor, x2: Tensor | None, u: Tensor, v: Tensor) -> Tensor:
        """Return sum_q sum_ij u_qi v_qj E K4(x1_a, x2_b, x_i, x_j), shape (n1, n2), for u and v of shape (Q, n)."""

    def fourth_diag(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Return sum_q sum_ij u_qi v_qj E K4(x_a, x_a, x_i, x_j), shape (n1,)."""
