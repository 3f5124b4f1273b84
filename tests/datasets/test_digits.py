from __future__ import annotations

import pytest
import torch

from ntkit.datasets import balanced_split, load_digits
from ntkit.errors import InputError


def test_images_are_float64_in_the_unit_interval():
    digits = load_digits()
    assert digits.images.shape == (len(digits), 1, 8, 8) == (1797, 1, 8, 8)
    assert digits.images.dtype == torch.float64
    assert digits.labels.dtype == torch.int64
    assert (digits.images.min(), digits.images.max()) == (0, 1)
    assert set(digits.labels.tolist()) == set(range(10))


def test_take_keeps_images_and_labels_together():
    digits = load_digits()
    index = torch.tensor([5, 2])
    taken = digits.take(index)
    assert torch.equal(taken.images[1], digits.images[2])
    assert torch.equal(taken.labels, digits.labels[index])


def test_split_is_balanced_disjoint_and_decided_by_the_seed():
    labels = load_digits().labels
    train, test = balanced_split(labels, [50, 30], seed=3)
    assert torch.bincount(labels[train]).tolist() == [5] * 10
    assert torch.bincount(labels[test]).tolist() == [3] * 10
    assert not set(train.tolist()) & set(test.tolist())
    again, _ = balanced_split(labels, [50, 30], seed=3)
    other, _ = balanced_split(labels, [50, 30], seed=4)
    assert torch.equal(train, again)
    assert not torch.equal(train, other)


def test_split_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    balanced_split(load_digits().labels, [20], seed=0)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(("sizes", "message"), [([25], "multiple"), ([0], "multiple"), ([1000, 1000], "at most 1740")])
def test_impossible_sizes(sizes, message):
    with pytest.raises(InputError, match=message):
        balanced_split(load_digits().labels, sizes, seed=0)


def test_no_labels():
    with pytest.raises(InputError, match="no image has the classes"):
        balanced_split(load_digits().labels[:0], [2], seed=0)
