from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import ntkit
from ntkit.experiments._program_fingerprint import program_fingerprint


def fingerprint(*layers, shape=(1, 6, 6), **gains):
    return program_fingerprint(ntkit.infinite_width(nn.Sequential(*layers), **gains)._program(shape, ntk=True))


def conv(activation=None, stride=1, padding=1, bias=True):
    size = (6 + 2 * padding - 3) // stride + 1
    head = nn.Linear(4 * size * size, 1)
    return nn.Conv2d(1, 4, 3, stride, padding, bias=bias), activation or nn.ReLU(), nn.Flatten(), head


def test_the_same_network_has_the_same_hash_whatever_its_weights():
    torch.manual_seed(1)
    first = fingerprint(*conv())
    torch.manual_seed(2)
    assert fingerprint(*conv()) == first


def test_every_edit_changes_it():
    frozen = conv()
    frozen[0].requires_grad_(False)
    found = [
        fingerprint(*conv()),
        fingerprint(*conv(nn.LeakyReLU(0.1))),
        fingerprint(*conv(nn.LeakyReLU(0.2))),
        fingerprint(*conv(nn.Tanh())),
        fingerprint(*conv(nn.Sigmoid())),
        fingerprint(*conv(nn.ELU(1.0))),
        fingerprint(*conv(nn.ELU(2.0))),
        fingerprint(*conv(stride=2)),
        fingerprint(*conv(padding=0)),
        fingerprint(*conv(bias=False), b_std=0.1),
        fingerprint(*conv(), b_std=0.1),
        fingerprint(*conv(), w_std=1.0),
        fingerprint(*conv(), w_std=torch.tensor(1.5)),
        fingerprint(*frozen),
        fingerprint(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(9, 2), nn.ReLU(), nn.Linear(2, 1)),
        fingerprint(nn.AvgPool2d(3), nn.Flatten(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1)),
        fingerprint(ntkit.Elementwise(torch.sin), nn.Flatten(), nn.Linear(36, 2), nn.ReLU(), nn.Linear(2, 1)),
    ]
    assert len(set(found)) == len(found)


CODE = """
import ntkit
from torch import nn
from ntkit.experiments._program_fingerprint import program_fingerprint
net = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Tanh(), nn.Linear(4, 1))
print(program_fingerprint(ntkit.infinite_width(net)._program((1, 6, 6), ntk=True)))
"""


def test_another_process_finds_the_same_hash():
    layers = nn.Flatten(), nn.Linear(36, 4), nn.Tanh(), nn.Linear(4, 1)
    run = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == fingerprint(*layers)


def test_a_function_without_a_hash_is_refused():
    class Odd:
        def __call__(self, z):
            return torch.sin(z)

    with pytest.raises(ntkit.errors.InputError, match="has none"):
        fingerprint(nn.Flatten(), nn.Linear(36, 4), ntkit.Elementwise(Odd()), nn.Linear(4, 1))
