"""Settings, cells and results of the digits experiment."""

from __future__ import annotations

from dataclasses import dataclass

from ntkit.errors import InputError

from ._digits_features import FeaturesFound
from ._digits_pair import LimitFound, NetworkFound
from .skeleton import check_at_least

__all__ = [
    "KERNELS",
    "LABEL_AWARE",
    "METHODS",
    "NETWORKS",
    "Cell",
    "Features",
    "Fit",
    "Found",
    "KernelFound",
    "KernelView",
    "Limit",
    "Settings",
    "Share",
    "Wide",
]

KERNELS = ("NTK", "NNGP", "CNTK, flatten", "CNTK, average pooling")
LABEL_AWARE = "label-aware NTK"
METHODS = (
    *KERNELS,
    LABEL_AWARE,
    "CNN, flatten",
    "CNN, average pooling",
    "RBF SVM",
    "RBF kernel ridge",
    "random forest",
)
NETWORKS = tuple(name for name in METHODS if name.startswith("CNN"))
"""The methods that train a network: they take longest, and the first report does not wait for them."""


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    sizes
        Training images, multiples of ten: every class has equally many.
    pool
        Images that training sets are drawn from; the kernels are computed once for all of them.
    test
        Images to test on, the same for every method and training set.
    draws
        Training sets of each size.
    channels
        Channels of the finite convolutional networks.
    widths, members
        Widths of the fully connected networks that learn to distinguish two digits, and the number of each.
    classes
        The two digits.
    pair
        Training images of the two digits, an even number.
    steps
        Gradient steps at which the networks and their limit are compared, increasing from 0.
    path
        Points between an image of the first digit and one of the second where predictions are compared.
    """

    sizes: tuple[int, ...] = (20, 50, 100, 200)
    pool: int = 300
    test: int = 300
    draws: int = 3
    channels: int = 32
    widths: tuple[int, ...] = (16, 64, 256)
    members: int = 8
    classes: tuple[int, int] = (3, 8)
    pair: int = 40
    steps: tuple[int, ...] = (0, 10, 400)
    path: int = 41

    def __post_init__(self) -> None:
        check_at_least(self, 1, "sizes", "draws", "channels", "widths", "path")
        check_at_least(self, 2, "members")
        if self.steps[:1] != (0,) or len(self.steps) < 2 or list(self.steps) != sorted(set(self.steps)):
            raise InputError(f"steps must increase from 0. Got {self.steps}.")
        if len(set(self.classes)) < 2:
            raise InputError(f"classes must be two different ones. Got {self.classes}.")


@dataclass(frozen=True)
class KernelView:
    """A cell: a kernel between all images, and what the figure shows of it."""

    kernel: str


@dataclass(frozen=True)
class KernelFound:
    """What the figure shows of a kernel on the pool.

    Attributes
    ----------
    shares
        Its positive eigenvalues over their sum, decreasing.
    cosines
        K(x, x') / sqrt(K(x, x) K(x', x')) of some images of each class, shape (k, k).
    classes
        Of these images, shape (k,).
    """

    shares: tuple[float, ...]
    cosines: tuple[tuple[float, ...], ...]
    classes: tuple[int, ...]


@dataclass(frozen=True)
class Fit:
    """A cell: a method trained on one training set."""

    method: str
    size: int
    draw: int


@dataclass(frozen=True)
class Share:
    """The fraction of the test images that a method classifies correctly."""

    accuracy: float


@dataclass(frozen=True)
class Wide:
    """A cell: a fully connected network that learns to distinguish two digits."""

    width: int
    draw: int


@dataclass(frozen=True)
class Limit:
    """A cell: the predictions of the limit of those networks."""


@dataclass(frozen=True)
class Features:
    """A cell: the features of a network whose first layer starts with this variance."""

    variance: float


Cell = KernelView | Limit | Wide | Features | Fit
Found = KernelFound | LimitFound | NetworkFound | FeaturesFound | Share
