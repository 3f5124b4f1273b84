"""Values in messages."""

import numpy as np
import pytest
import torch
from torch import nn

from ntkit._src.common import bytes_text, seconds_text, shown

CASES = [
    (3, "3"),
    ("auto", "'auto'"),
    (None, "None"),
    ((3, 32, 32), "(3, 32, 32)"),
    ((1,), "(1,)"),
    ([], "[]"),
    (torch.tensor(2.5), "tensor(2.5000)"),
    (np.float64(1.5), repr(np.float64(1.5))),
    (torch.zeros(2, 3), "a tensor of shape (2, 3) and dtype torch.float32"),
    (torch.zeros(1), "a tensor of shape (1,) and dtype torch.float32"),
    (np.zeros((4, 5)), "an array of shape (4, 5) and dtype float64"),
    ([torch.zeros(7), 1], "[a tensor of shape (7,) and dtype torch.float32, 1]"),
    ({"w_std": torch.zeros(9)}, "{'w_std': a tensor of shape (9,) and dtype torch.float32}"),
    (tuple(range(500)), "a tuple of length 500"),
    ("x" * 500, "a str of length 500"),
    (nn.Sequential(*(nn.Linear(2, 2) for _ in range(20))), "a Sequential"),
]


@pytest.mark.parametrize(("value", "text"), CASES)
def test_values(value, text):
    assert shown(value) == text


def test_units():
    assert (bytes_text(10_000_000_000), bytes_text(512)) == ("10.0 GB", "512 bytes")
    assert (seconds_text(5400), seconds_text(90), seconds_text(0.5)) == ("1.5 h", "1.5 min", "0.5 s")
