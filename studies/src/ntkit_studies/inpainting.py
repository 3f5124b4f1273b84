"""Missing pixels of photographs: the kernel of an encoder-decoder compared with biharmonic and linear interpolation.

Golikov et al. 2022, section 6.1.3, and Radhakrishnan et al. 2021. Run it with ``python -m ntkit_studies inpainting``; the
photographs and the biharmonic method are scikit-image's (``pip install scikit-image``).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import griddata

from ntkit.errors import InputError, MissingDependencyError

from .methods import inpaint
from .plots import Section, Table
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "Cell", "Filled", "Settings", "main", "run"]

NTK, CHOSEN, DEEP = "NTK", 'NTK, module="auto"', "NTK, more levels"
BIHARMONIC, LINEAR = "biharmonic (scikit-image)", "linear interpolation"
METHODS = (CHOSEN, NTK, BIHARMONIC, LINEAR)
DRAWN = "drawn"


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    images
        Names of scikit-image's photographs, or ``"drawn"`` for a smooth image with edges.
    side
        They are made grey and reduced to this side.
    large
        The side of one more, the second of the images in colour; 0 for none. Not done by the biharmonic method.
    missing
        The fraction of pixels missing at random; the other mask is a square hole of a quarter of the side.
    levels
        Of the network.
    deep_levels
        Of one more network, for the first image; 0 for none.
    """

    images: tuple[str, ...] = ("camera", "astronaut", "coffee")
    side: int = 128
    large: int = 512
    missing: float = 0.5
    levels: int = 3
    deep_levels: int = 6

    def __post_init__(self) -> None:
        check_at_least(self, 1, "levels")
        check_at_least(self, 0, "large", "deep_levels")
        check_at_least(self, 16, "side")
        if not 0 < self.missing < 1:
            raise InputError(f"missing must be between 0 and 1. Got {self.missing}.")


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size."""
    return Settings((DRAWN,), 32, 0, 0.5, 2, 3) if size == "quick" else Settings()


@dataclass(frozen=True)
class Cell:
    """One method on one image with one mask."""

    image: str
    mask: Literal["random", "hole"]
    method: str
    large: bool


@dataclass(frozen=True)
class Filled:
    """How well the gaps were filled.

    Attributes
    ----------
    whole, missing
        Peak signal-to-noise ratio in dB over the whole image and over the missing pixels; None where the method's package is
        not installed.
    note
        How the system was solved.
    gigabytes
        The process's peak of resident memory so far, where the system tells it.
    """

    whole: float | None
    missing: float | None
    note: str
    gigabytes: float | None


def cells(run: Run[Settings]) -> list[Cell]:
    """Return one cell per image, mask and method."""
    settings = run.settings
    found = [Cell(image, mask, method, False) for image in settings.images for mask in _masks() for method in METHODS]
    if settings.large:
        name = settings.images[min(1, len(settings.images) - 1)]
        found += [Cell(name, mask, method, True) for mask in _masks() for method in (CHOSEN, LINEAR)]
    # Last, for it needs most memory, and peaks are those of the process so far.
    return found + [Cell(settings.images[0], mask, DEEP, False) for mask in _masks() if settings.deep_levels]


def _masks() -> tuple[Literal["random", "hole"], ...]:
    return ("random", "hole")


def compute(run: Run[Settings], cell: Cell) -> Filled:
    """Fill the gaps of one image."""
    settings = run.settings
    side = settings.large if cell.large else settings.side
    try:
        picture = load_picture(cell.image, side, cell.large)
        mask = draw_mask(side, cell.mask, settings.missing, run.seed)
        levels = settings.deep_levels if cell.method == DEEP else settings.levels
        filled, note = fill(cell.method, picture, mask, levels)
    except MissingDependencyError:
        return Filled(None, None, "scikit-image is not installed", None)
    return Filled(_psnr(filled - picture), _psnr((filled - picture)[:, mask]), note, _peak_gigabytes())


def _peak_gigabytes() -> float | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)


def load_picture(name: str, side: int, colour: bool) -> NDArray[np.float64]:
    """Return an image between 0 and 1, shape (channels, side, side)."""
    if name == DRAWN:
        rows, columns = np.mgrid[0:side, 0:side] / side
        drawn = 0.5 + 0.25 * np.sin(7 * rows) * np.cos(5 * columns) + 0.2 * (rows + columns > 1)
        return np.repeat(drawn[None], 3 if colour else 1, 0)
    try:
        from skimage import color, data, transform

        resize: Any = transform.resize
    except ImportError as error:
        raise MissingDependencyError("the photographs are scikit-image's: pip install scikit-image") from error
    if not hasattr(data, name):
        raise InputError(f"there is no photograph {name!r} in scikit-image. Name one such as 'camera'.")
    pixels = np.asarray(getattr(data, name)(), np.float64) / 255
    if pixels.ndim == 3 and not colour:
        pixels = color.rgb2gray(pixels)
    pixels = resize(pixels, (side, side), anti_aliasing=True)
    return np.atleast_3d(pixels).transpose(2, 0, 1)


def draw_mask(side: int, kind: str, missing: float, seed: int) -> NDArray[np.bool_]:
    """Return where pixels are missing, shape (side, side)."""
    if kind == "random":
        return np.random.default_rng(seed).random((side, side)) < missing
    mask = np.zeros((side, side), bool)
    mask[3 * side // 8 : 5 * side // 8, 3 * side // 8 : 5 * side // 8] = True
    return mask


def fill(
    method: str, picture: NDArray[np.float64], mask: NDArray[np.bool_], levels: int
) -> tuple[NDArray[np.float64], str]:
    """Give the image with its gaps filled, shape (channels, side, side), and how."""
    if method in (CHOSEN, NTK, DEEP):
        module: Literal["auto"] | None = "auto" if method == CHOSEN else None
        # Factorising the kernel of so many levels takes a minute, so no ridges are compared.
        ridge: float | Literal["auto"] = 1e-4 if method == DEEP else "auto"
        found = inpaint(torch.from_numpy(picture), torch.from_numpy(mask), module, levels=levels, ridge=ridge)
        return found.image.numpy(), found.status
    if method == BIHARMONIC:
        try:
            from skimage.restoration import inpaint_biharmonic
        except ImportError as error:
            raise MissingDependencyError("the method is scikit-image's: pip install scikit-image") from error
        return np.stack([inpaint_biharmonic(np.where(mask, 0, one), mask) for one in picture]), ""
    known, gaps = np.argwhere(~mask), np.argwhere(mask)
    values = picture[:, ~mask].T
    inside, nearest = griddata(known, values, gaps, "linear"), griddata(known, values, gaps, "nearest")
    filled: Any = picture.copy()
    filled[:, mask] = np.where(np.isnan(inside), nearest, inside).T
    return filled, "nearest pixels outside the hull"


def _psnr(error: NDArray[np.float64]) -> float:
    return float(-10 * math.log10(max(float(np.mean(error**2)), 1e-30)))


def report(results: Results[Settings, Cell, Filled]) -> Report:
    """Put the methods in the order of their error, for each image and mask."""
    rows = []
    groups = dict.fromkeys((cell.image, cell.mask, cell.large) for cell in results.values)
    for image, mask, large in groups:
        found = [
            (cell, one)
            for cell, one in results.values.items()
            if (cell.image, cell.mask, cell.large) == (image, mask, large)
        ]
        found.sort(key=lambda pair: -(pair[1].whole if pair[1].whole is not None else -math.inf))
        name = f"{image}, {results.settings.large}, colour" if large else f"{image}, {results.settings.side}"
        for cell, one in found:
            numbers = ["-" if value is None else f"{value:.2f}" for value in (one.whole, one.missing)]
            memory = "-" if one.gigabytes is None else f"{one.gigabytes:.2f}"
            rows.append([name, mask, cell.method, *numbers, f"{results.seconds[cell]:.1f}", memory, one.note or "-"])
    header = ["image", "mask", "method", "PSNR, whole (dB)", "missing (dB)", "seconds", "GB", "how"]
    caption = (
        "Peak signal-to-noise ratio over the whole image and over the missing pixels, the best method first. GB: the peak of "
        "the process up to then, in the order of the cells"
    )
    return Report(
        "Inpainting",
        f"Photographs with {100 * results.settings.missing:g} % of their pixels missing at random, or a square hole, filled by "
        f"the tangent kernel of an encoder-decoder of {results.settings.levels} levels, and by interpolation. Ridges, and the "
        'network of module="auto", are the best on a tenth of the known pixels, which the fit does not read; the network of '
        f"{results.settings.deep_levels} levels has the ridge 1e-4.",
        [Section("Signal-to-noise ratios", [Table(header, rows, caption)])],
    )


EXPERIMENT = experiment_of(
    globals(),
    name="inpainting",
    title="Signal-to-noise ratio of filled gaps: the kernel of an encoder-decoder compared with interpolation.",
    reproduces="Golikov et al. 2022, section 6.1.3",
    selects=("images", "large"),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
