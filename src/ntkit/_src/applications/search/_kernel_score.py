"""The accuracy of an architecture's kernel on a few points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.common import check_batches, check_choice, check_labels, check_module, check_ridge, class_numbers
from ntkit._src.finite import monte_carlo
from ntkit._src.kernels import Kernel, infinite_width
from ntkit._src.solvers import solve
from ntkit.errors import InputError, UnsupportedLayerError


@dataclass(frozen=True)
class KernelScore:
    """The accuracy of kernel regression.

    Attributes
    ----------
    accuracy
        Accuracy on the validation points.
    kernel
        ``"exact"``, or ``"Monte Carlo"`` if the network has no limit in closed form.
    train, validation
        Number of training and of validation points.
    """

    accuracy: float
    kernel: str
    train: int
    validation: int


def kernel_score(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    kernel: Literal["ntk", "nngp"] = "ntk",
    *,
    ridge: float = 1e-4,
    validation: float = 0.5,
    n_samples: int = 8,
    generator: torch.Generator | None = None,
) -> KernelScore:
    """Return the validation accuracy of kernel regression with an architecture's kernel, without training a network.

    Arora et al. 2019 (section 6) propose to judge architectures by kernel performance on a small subset of the data; Park et al.
    2020 do so with the NNGP kernel.

    Parameters
    ----------
    module
        Any network with one output or many; its kernels do not depend on the number of outputs.
    x : Tensor of shape (n, ...)
        Points.
    y : Tensor of shape (n,)
        Their classes, at least two.
    kernel : {"ntk", "nngp"}
        Which kernel: exact if the network has a limit in closed form, otherwise the mean over random networks. Default ``"ntk"``.
    ridge : float
        Relative to trace(K)/n. Default 1e-4.
    validation : float
        The fraction of the points used for validation. Default 0.5.
    n_samples : int
        Number of networks of the Monte Carlo mean. Default 8.
    generator : torch.Generator, optional
        Generator of the split and of those networks, on the CPU. Default None: torch's global one.

    Returns
    -------
    KernelScore

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit.applications.search import kernel_score
    >>> x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] * x[:, 1] > 0).long()
    >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> score = kernel_score(net, x, y, generator=torch.Generator().manual_seed(0))
    >>> score.kernel, score.accuracy > 0.7
    ('exact', True)
    """
    check_module(module)
    check_batches(x, None)
    check_labels("y", y, len(x), x.device)
    ridge = check_ridge(ridge)
    check_choice("kernel", kernel, ("ntk", "nngp"))
    if not 0 < validation < 1 or not 1 <= round(validation * len(x)) < len(x):
        raise InputError(
            f"validation must be a share that leaves points on both sides. Got {validation!r} of {len(x)} points."
        )
    classes, _, count = class_numbers(y)
    if count < 2:
        raise InputError("y must have at least two classes. Got one: every prediction would be right.")
    order = torch.randperm(len(x), generator=generator).to(x.device)
    held_out, train = order.split([round(validation * len(x)), len(x) - round(validation * len(x))])
    if len(torch.unique(classes[train])) < 2:
        raise InputError(
            "the points to learn from are all of one class. Pass more points, or a smaller validation share."
        )
    found, kind = _kernel(module, kernel, x, n_samples, generator)
    targets = F.one_hot(classes[train], count).to(x) - 1 / count
    with torch.no_grad():
        weights = solve(found(x[train]), targets, ridge=ridge).value
        predicted = (found(x[held_out], x[train]) @ weights).argmax(1)
    accuracy = float((predicted == classes[held_out]).double().mean())
    return KernelScore(accuracy, kind, len(train), len(held_out))


def _kernel(
    module: nn.Module, which: str, x: Tensor, n_samples: int, generator: torch.Generator | None
) -> tuple[Kernel, str]:
    """Return the exact kernel, or the mean over random networks."""
    try:
        limit = infinite_width(module)
        exact = limit.ntk if which == "ntk" else limit.nngp
        exact(x[:1])
    except UnsupportedLayerError:
        drawn = monte_carlo(module, n_samples, generator=generator)
        return drawn.ntk if which == "ntk" else drawn.nngp, "Monte Carlo"
    return exact, "exact"
