"""Independent labels: their distribution, the orthonormal functions of one label, and the parts built from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from ntkit._src.common import check_integer
from ntkit.errors import InputError


@dataclass(frozen=True)
class LabelLaw:
    r"""n independent labels, ``binary`` if their classes are written -1 and +1, otherwise 0, ..., c - 1.

    ``probabilities`` are P(y_i = a), shape (n, c), float64; ``functions`` :math:`\varphi_{i\alpha}(a)`, shape (n, c, c), with
    :math:`\varphi_{i0} = 1` and :math:`\mathrm{E}\, \varphi_{i\alpha} \varphi_{i\beta} = 1\{\alpha = \beta\}`.
    """

    probabilities: Tensor
    functions: Tensor
    binary: bool

    @property
    def size(self) -> int:
        """Number of labels."""
        return len(self.probabilities)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.probabilities.shape[1]

    def labels(self, numbers: Tensor) -> Tensor:
        """Return numbers of classes, any shape, as labels: -1.0 and +1.0, or the numbers themselves."""
        return (2 * numbers - 1).to(self.probabilities.dtype) if self.binary else numbers

    def numbers(self, labels: Tensor) -> Tensor:
        """Return labels, shape (..., n), as numbers of classes."""
        if not isinstance(labels, Tensor) or labels.shape[-1:] != (self.size,):
            raise InputError(f"labels must be a tensor of shape (..., {self.size}).")
        numbers = (labels + 1) / 2 if self.binary else labels.double()
        if not bool(((numbers == numbers.round()) & (numbers >= 0) & (numbers < self.classes)).all()):
            raise InputError(f"labels must be {'-1 and +1' if self.binary else f'from 0 to {self.classes - 1}'}.")
        return numbers.to(device=self.probabilities.device, dtype=torch.int64)

    def every(self) -> Tensor:
        """Return all c^n vectors of class numbers, shape (c^n, n), the last label varying fastest."""
        return torch.tensor(list(product(range(self.classes), repeat=self.size)), device=self.probabilities.device)

    def weights(self, numbers: Tensor) -> Tensor:
        """Return the probability of each vector of class numbers, shape (m, n) to (m,)."""
        return self.probabilities.log().expand(len(numbers), -1, -1).gather(2, numbers[:, :, None]).sum((1, 2)).exp()

    def draw(self, n_samples: int, generator: torch.Generator) -> Tensor:
        """Draw vectors of class numbers, shape (n_samples, n)."""
        uniform = torch.rand(n_samples, self.size, 1, dtype=torch.float64, generator=generator)
        steps = self.probabilities.cpu().cumsum(1)[:, :-1]
        return (uniform > steps).sum(2).to(self.probabilities.device)

    def design(self, numbers: Tensor) -> Tensor:
        r"""Return :math:`\varphi_{i\alpha}(y_i)`, alpha > 0, shape (m, n) to (m, n, c - 1)."""
        return self.functions[:, 1:, :].permute(0, 2, 1)[torch.arange(self.size), numbers]

    def analysis(self) -> Tensor:
        """Return P(y_i = a) phi_i,alpha(a), shape (n, c, c): a table of values times its transpose gives coefficients."""
        return self.functions * self.probabilities[:, None, :]


def label_law(n: int, eta: float | Tensor | None) -> LabelLaw:
    """Read the probabilities of labels, see :func:`ntkit.hoeffding`."""
    check_integer("n", n, 1)
    given = torch.as_tensor(0.5 if eta is None else eta, dtype=torch.float64)
    if given.shape not in ((), (n,)) and not (given.ndim == 2 and len(given) == n and given.shape[1] > 1):
        raise InputError(
            f"eta must be one number, of shape ({n},) for P(y_i = +1), or of shape ({n}, classes). Got {tuple(given.shape)}."
        )
    binary = given.ndim < 2
    table = torch.stack([1 - given.expand(n), given.expand(n)], 1) if binary else given
    if not bool(((table > 0) & (table < 1)).all()):
        raise InputError(
            "eta must lie strictly between 0 and 1. A known label is not a variable: fix it inside the function, and "
            "leave it out of n."
        )
    if not binary and float((table.sum(1) - 1).abs().max()) > 1e-6:  # they may come from single precision
        raise InputError("the class probabilities of every label, the rows of eta, must sum to one.")
    table = table / table.sum(1, keepdim=True)
    return LabelLaw(table, _orthonormal(table), binary)


def _orthonormal(table: Tensor) -> Tensor:
    """Orthogonalise 1 and the indicators of all classes but the first, for the weights of each row."""
    n, c = table.shape
    if c == 2:  # exact for fair coins
        rise = torch.stack([-(table[:, 1] / table[:, 0]).sqrt(), (table[:, 0] / table[:, 1]).sqrt()], 1)
        return torch.stack([torch.ones_like(rise), rise], 1)
    start = torch.eye(c, dtype=table.dtype, device=table.device)
    start[:, 0] = 1
    root = table.sqrt()
    q, r = torch.linalg.qr(root[:, :, None] * start.expand(n, c, c))
    # Signs so that phi_0 is 1, and the next one increases with the class.
    signed = q * r.diagonal(dim1=1, dim2=2).sign()[:, None, :]
    functions: Tensor = (signed / root[:, :, None]).transpose(1, 2).contiguous()
    functions[:, 0, :] = 1
    return functions


def number_of_vectors(law: LabelLaw) -> float:
    """Return c^n, as a float that may be infinite."""
    power = law.size * math.log2(law.classes)
    return float(law.classes) ** law.size if power < 1000 else math.inf
