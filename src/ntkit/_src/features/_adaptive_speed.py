"""Speeds that follow the neural feature ansatz: the layer where it holds least moves fastest."""

from __future__ import annotations

import math

from ntkit._src.common import check_number
from ntkit.errors import InputError, InputTypeError

from ._recorder import Recorder
from ._speed_limited import SpeedLimited


class AdaptiveSpeed:
    r"""Give the layer with the least uncentred correlation the speed s, and all others the speed 1/s, before every step.

    Adaptive Speed Limited Optimization (Beaglehole et al. 2024, appendix J, with s = 20). The readout, whose correlation is
    always 1, has the speed 1/s throughout.

    Parameters
    ----------
    optimizer
        A :class:`SpeedLimited` created from named parameters. Its speeds are overwritten: each group gets the speed of its layer,
        and 1/s if that layer is not measured.
    recorder
        A :class:`Recorder` of the trained module, whose layers, samples and kind of correlation are used. A measurement
        that the recorder made at the same step is reused.
    strength
        s, at least 1.

    Attributes
    ----------
    layer : str or None
        The layer that moved fastest at the last step.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit.features import AdaptiveSpeed, Recorder, SpeedLimited
    >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> x = torch.randn(8, 2)
    >>> optimizer = SpeedLimited(net.named_parameters(), lr=0.05, eps=0.01)
    >>> adaptive = AdaptiveSpeed(optimizer, Recorder(net, x, every=10))
    >>> net(x).square().mean().backward()
    >>> adaptive.step()
    >>> sorted({group["speed"] for group in optimizer.param_groups})
    [0.05, 20.0]
    """

    def __init__(self, optimizer: SpeedLimited, recorder: Recorder, strength: float = 20.0) -> None:
        if not isinstance(optimizer, SpeedLimited):
            raise InputTypeError(f"optimizer must be a SpeedLimited. Got {type(optimizer).__name__}.")
        if not isinstance(recorder, Recorder):
            raise InputTypeError(f"recorder must be a Recorder. Got {type(recorder).__name__}.")
        check_number("strength", strength, 1)
        missing = set(recorder.layers) - {group["layer"] for group in optimizer.param_groups}
        if missing:
            raise InputError(
                "every measured layer must have a group of parameters. There is none for "
                f"{', '.join(map(repr, sorted(missing)))}: write SpeedLimited(module.named_parameters(), ...)."
            )
        self.optimizer = optimizer
        self.recorder = recorder
        self.strength = float(strength)
        self.layer: str | None = None

    def step(self) -> None:
        """Set the speeds from the module's present state, and take a step of the optimiser."""
        measured = self.recorder.uncentred()
        known = {path: value for path, value in measured.items() if not math.isnan(value)}
        self.layer = min(known, key=known.__getitem__) if known else None
        for group in self.optimizer.param_groups:
            fastest = self.layer is not None and group["layer"] == self.layer
            group["speed"] = self.strength if fastest else 1 / self.strength
        self.optimizer.step()
