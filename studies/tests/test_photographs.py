from __future__ import annotations

import pytest
import torch

from ntkit.errors import InputError, MissingDependencyError
from ntkit_studies import _photographs
from ntkit_studies._photographs import default_photographs, photograph


def test_they_are_grey_squares():
    image = photograph("china", 16)
    assert image.shape == (16, 16) and image.dtype == torch.float64 and 0 <= image.min() < image.max() <= 1


def test_those_of_scikit_image_where_it_is_installed():
    pytest.importorskip("skimage")
    assert default_photographs() == ("astronaut", "text", "coffee")
    assert photograph("text", 8).shape == (8, 8)


def test_without_scikit_image(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(_photographs, "find_spec", lambda name: None)
    monkeypatch.setattr(_photographs, "import_module", missing)
    assert default_photographs() == ("china", "flower")
    with pytest.raises(MissingDependencyError, match="pip install scikit-image"):
        photograph("coffee", 8)


def test_unknown_names():
    with pytest.raises(InputError, match="there is no photograph 'moon'"):
        photograph("moon", 16)
