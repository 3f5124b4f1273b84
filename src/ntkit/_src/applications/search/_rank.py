"""Architectures ranked by two proxies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from ntkit._src.common import Progress, copy_module
from ntkit.errors import InputError, InputTypeError

from ._condition_number import ConditionNumber, condition_number
from ._linear_regions import LinearRegions, linear_regions


@dataclass(frozen=True)
class Ranked:
    """One architecture and its rank.

    Attributes
    ----------
    name
        The given name, or the architecture's index.
    score
        The sum of both ranks, smaller is better; equal values share the mean of their ranks.
    condition, regions
        The measurements.
    """

    name: str
    score: float
    condition: ConditionNumber
    regions: LinearRegions


def rank(
    modules: Mapping[str, nn.Module] | Sequence[nn.Module],
    x: Tensor,
    patches: Tensor | None = None,
    *,
    small: Mapping[str, nn.Module] | Sequence[nn.Module] | None = None,
    repeats: int = 3,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> list[Ranked]:
    """Rank untrained networks as TE-NAS does (Chen et al. 2021), best first.

    The score is the rank of the condition number, ascending, plus the rank of the number of linear regions, descending.
    ``docs/applications.md`` has a study of what such ranks are worth compared with counting parameters.

    Parameters
    ----------
    modules
        At least two modules, by name or in order.
    x : Tensor of shape (n, ...)
        Inputs for the condition number.
    patches : Tensor of shape (m, ...), optional
        Inputs for the regions. Whole images saturate the count, so use small ones. Default None: ``x``.
    small
        Networks of the same architectures for those patches, with fewer channels, by the same names or in the same order.
        Default None: ``modules``.
    repeats
        Number of draws of each condition number. Default 3.
    generator : torch.Generator, optional
        Generator of these draws. Default None: torch's global one.
    progress : callable, optional
        Called with the number of networks done and their total.

    Returns
    -------
    list of Ranked

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit.applications.search import rank
    >>> _ = torch.manual_seed(0)
    >>> nets = {width: nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 2)) for width in (2, 64)}
    >>> [one.name for one in rank({f"width {w}": net for w, net in nets.items()}, torch.randn(12, 2))]
    ['width 64', 'width 2']
    """
    named = _named(modules)
    others = named if small is None else _named(small)
    if len(named) < 2:
        raise InputError(f"modules must be at least two, to be ranked. Got {len(named)}.")
    if list(others) != list(named):
        raise InputError(f"small must have the names of modules, in their order. Got {list(others)} and {list(named)}.")
    conditions, regions = [], []
    for number, (name, module) in enumerate(named.items()):
        conditions.append(condition_number(module, x, repeats, generator=generator))
        regions.append(linear_regions(copy_module(others[name]).eval(), x if patches is None else patches))
        if progress is not None:
            progress(number + 1, len(named))
    scores = rankdata([one.value for one in conditions]) + rankdata([-one.count for one in regions])
    found = [Ranked(name, float(s), c, r) for name, s, c, r in zip(named, scores, conditions, regions, strict=True)]
    return sorted(found, key=lambda one: one.score)


def _named(modules: Mapping[str, nn.Module] | Sequence[nn.Module]) -> dict[str, nn.Module]:
    if isinstance(modules, nn.Module) or not isinstance(modules, (Mapping, Sequence)):
        raise InputTypeError(f"modules must be a mapping or a sequence of modules. Got {type(modules).__name__}.")
    pairs = modules.items() if isinstance(modules, Mapping) else ((str(i), one) for i, one in enumerate(modules))
    return dict(pairs)
