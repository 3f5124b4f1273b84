from __future__ import annotations

import numpy as np
import pytest
import torch

from ntkit.common import check_generator
from ntkit.errors import InputTypeError


def test_generators_and_none_pass():
    check_generator(None)
    check_generator(torch.Generator())


@pytest.mark.parametrize("given", [0, "seed", np.random.default_rng(0)])
def test_anything_else_is_an_error(given):
    with pytest.raises(InputTypeError, match="torch.Generator"):
        check_generator(given)
