"""What adaptive speeds refuse; their rule is tested beside the optimiser's."""

from __future__ import annotations

import pytest
import torch
from tests.cases import mlp

from ntkit.errors import InputError, InputTypeError
from ntkit.features import AdaptiveSpeed, Recorder, SpeedLimited


def test_bad_arguments() -> None:
    net, x = mlp(2, 3, 1), torch.ones(4, 2)
    recorder, optimizer = Recorder(net, x), SpeedLimited(net.named_parameters(), lr=0.1)
    with pytest.raises(InputTypeError, match="SpeedLimited"):
        AdaptiveSpeed(torch.optim.SGD(net.parameters()), recorder)  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="Recorder"):
        AdaptiveSpeed(optimizer, x)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1"):
        AdaptiveSpeed(optimizer, recorder, strength=0.5)
    with pytest.raises(InputError, match="none for '0', '2'"):
        AdaptiveSpeed(SpeedLimited(net.parameters(), lr=0.1), recorder)
