"""Grey photographs for studies of images: scikit-image's if it is installed, otherwise the two that scikit-learn ships."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from ntkit.errors import InputError, MissingDependencyError

__all__ = ["PHOTOGRAPHS", "default_photographs", "photograph"]

PHOTOGRAPHS = ("astronaut", "text", "coffee", "china", "flower")
_OF_SKLEARN = ("china", "flower")
_GREY = torch.tensor([0.2125, 0.7154, 0.0721], dtype=torch.float64)  # luminance of red, green, blue (ITU-R 709)


def default_photographs() -> tuple[str, ...]:
    """Return the names of the photographs that this installation has."""
    return PHOTOGRAPHS[:3] if find_spec("skimage") is not None else _OF_SKLEARN


def photograph(name: str, side: int) -> Tensor:
    """Return the middle square of a photograph as grey values from 0 to 1, averaged down to (side, side), float64.

    Raises
    ------
    InputError
        If there is none of that name.
    MissingDependencyError
        If it is one of scikit-image's, which is not installed.
    """
    if name not in PHOTOGRAPHS:
        raise InputError(f"there is no photograph {name!r}. Name one of {', '.join(PHOTOGRAPHS)}.")
    if name in _OF_SKLEARN:
        pixels = import_module("sklearn.datasets").load_sample_image(f"{name}.jpg")
    else:
        try:
            pixels = getattr(import_module("skimage.data"), name)()
        except ImportError as error:
            raise MissingDependencyError(
                f"the photograph {name!r} comes with scikit-image: pip install scikit-image, or take {', '.join(_OF_SKLEARN)}."
            ) from error
    values = torch.tensor(pixels, dtype=torch.float64) / 255
    grey = values @ _GREY if values.ndim == 3 else values
    edge = min(grey.shape)
    top, left = ((length - edge) // 2 for length in grey.shape)
    square = grey[top : top + edge, left : left + edge]
    return F.adaptive_avg_pool2d(square[None, None], side)[0, 0]
