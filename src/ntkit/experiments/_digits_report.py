"""What the digits experiment shows: a table in the terminal, and the HTML report."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import rich.box
import rich.table
from rich.console import Console

from ntkit.plots import (
    CurveStyle,
    Picture,
    Section,
    Table,
    html_report,
    new_figure,
    plot_accuracy,
    plot_heat_map,
    plot_spectrum,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ntkit.experiments.digits import DigitsResult

__all__ = ["console_table", "html"]

# Okabe and Ito's colours, which colour-blind readers can tell apart. One colour for a network's kernel (solid line) and
# the same network trained (dashed); dotted lines for the methods without a network.
_STYLES = {
    "NTK": CurveStyle("#0072B2", "-", "o"),
    "NNGP": CurveStyle("#56B4E9", "-", "s"),
    "CNTK, flatten": CurveStyle("#E69F00", "-", "^"),
    "CNTK, average pooling": CurveStyle("#D55E00", "-", "D"),
    "CNN, flatten": CurveStyle("#E69F00", "--", "v"),
    "CNN, average pooling": CurveStyle("#D55E00", "--", "P"),
    "RBF SVM": CurveStyle("#000000", ":", "X"),
    "RBF kernel ridge": CurveStyle("#009E73", ":", "p"),
    "random forest": CurveStyle("#CC79A7", ":", "*"),
}


def console_table(result: DigitsResult) -> None:
    """Print the accuracies."""
    source = _accuracy_table(result)
    table = rich.table.Table(title=source.caption, title_justify="left", box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, name in enumerate(source.header):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in source.rows:
        table.add_row(*(cell.replace(" ± ", "±") for cell in row))  # five sizes fit in 80 columns
    Console().print(table)


def html(result: DigitsResult) -> str:
    """Give the report as one self-contained HTML text."""
    settings = result.settings
    introduction = (
        f"The exact kernels of infinitely wide networks, computed by ntkit, on scikit-learn's 8x8 handwritten digits: "
        f"training sets of {settings.sizes[0]} to {settings.sizes[-1]} images, {settings.test} test images, beside the "
        "same convolutional networks at finite width and three classifiers that use no network."
    )
    sections = [
        Section("Accuracy", [_reading(result), _accuracy_table(result), _curves(result)]),
        Section("The kernels", [_heat_maps(result), _spectra(result)]),
        Section("Time", [_time_table(result)]),
        Section("How it was made", [*_methods(result), _version_table()]),
    ]
    return html_report("ntkit on handwritten digits", introduction, sections)


def _reading(result: DigitsResult) -> str:
    means = {name: float(values[-1].mean()) for name, values in result.accuracy.items()}
    best = max(means, key=means.__getitem__)
    error = (means[best] * (1 - means[best]) / result.settings.test) ** 0.5
    return (
        f"With {result.settings.sizes[-1]} training images {best} has the highest mean accuracy, {means[best]:.1%}. "
        f"The {result.settings.test} test images alone leave a standard error of {error:.1%} in such a number, so "
        "differences of less than about twice that rank nothing. This is a demonstration on one small data set, "
        "not a benchmark."
    )


def _accuracy_table(result: DigitsResult) -> Table:
    rows = [
        [name, *(f"{100 * row.mean():.1f} ± {100 * row.std():.1f}" for row in values)]
        for name, values in result.accuracy.items()
    ]
    caption = (
        f"Test accuracy in % by number of training images: mean ± standard deviation over {result.settings.draws} training "
        "sets"
    )
    return Table(["method", *(str(size) for size in result.settings.sizes)], rows, caption)


def _time_table(result: DigitsResult) -> Table:
    def seconds(source: dict[str, float], name: str) -> str:
        return f"{source[name]:.2f}" if name in source else "–"

    rows = [[n, seconds(result.kernel_seconds, n), seconds(result.fit_seconds, n)] for n in result.accuracy]
    fits = result.settings.draws * len(result.settings.sizes)
    caption = (
        f"Seconds: computing the kernel matrix once, and {fits} fits with their choice of settings and predictions"
    )
    return Table(["method", "kernel", "fits"], rows, caption)


def _version_table() -> Table:
    names = ("ntkit", "torch", "numpy", "scipy", "scikit-learn", "matplotlib")
    return Table(["package", "version"], [["Python", platform.python_version()], *([n, version(n)] for n in names)])


def _curves(result: DigitsResult) -> Picture:
    figure = new_figure(8.6, 4.6)
    plot_accuracy(figure.subplots(), result.settings.sizes, result.accuracy, _STYLES)
    return Picture(
        figure,
        "Accuracy against training size. Points: mean over training sets; bars: from the worst to the best of "
        "them. A network's "
        "kernel and the same network trained share a colour. Points are moved apart sideways a little.",
        "Line plot of test accuracy against the number of training images, one line a method; the table has the numbers.",
    )


def _heat_maps(result: DigitsResult) -> Picture:
    figure = new_figure(10, 4.6)
    for ax, name in zip(figure.subplots(1, 2), ("NTK", "CNTK, average pooling"), strict=True):
        plot_heat_map(ax, result.kernels[name], result.labels, title=name)
    return Picture(
        figure,
        f"Kernels of the {result.settings.pool} images that training sets are drawn from, sorted by class and divided by "
        "sqrt(K(x, x) K(x', x')). Bright blocks on the diagonal are classes whose images the kernel finds alike. Colours "
        "span the 2nd to the 98th percentile of each kernel, so the two scales differ: averaging over positions makes all "
        "images look more alike.",
        "Two heat maps of kernel matrices with ten blocks along the diagonal, one a class.",
    )


def _spectra(result: DigitsResult) -> Picture:
    figure: Figure = new_figure(7, 4.4)
    plot_spectrum(figure.subplots(), result.kernels, _STYLES)
    return Picture(
        figure,
        "Eigenvalues of the same kernel matrices, largest first, as shares of their sum. Gradient descent "
        "learns the part of the "
        "labels along an eigenvector at the speed of its eigenvalue, so a steep spectrum learns few directions early.",
        "Log-log plot of the eigenvalues of four kernels against rank.",
    )


def _methods(result: DigitsResult) -> list[str]:
    settings = result.settings
    return [
        "NTK and NNGP are the kernels of a fully connected ReLU network of three hidden layers; CNTK is the NTK of two 3x3 "
        "convolutions with ReLU whose head reads every position (flatten) or their average (average pooling). Weights "
        "have gain √2 and biases 0. Classes are predicted by kernel regression on centred one-hot targets with no ridge: "
        "nothing is tuned.",
        f"The finite CNNs have {settings.width} channels and He's initialisation (gain √2, as the kernels), and are "
        f"trained by Adam on cross-entropy, {settings.steps} steps of up to 25 images, the learning "
        "rate (0.01 for flatten, 0.02 for average pooling) falling to 0 as a cosine: one run a training set, no augmentation. "
        "Their initialisation, rates and steps were set by hand when this demonstration was written, after "
        "earlier settings had trained poorly, and partly with test "
        "accuracies on this data set in view; they are not the best such networks. SVM and kernel ridge "
        "choose width and regularisation by cross-validation on the training images (up to five folds). The "
        "forest has 200 trees.",
        f"A pool of {settings.pool} images and the test images are drawn with equally many of each class (seed "
        f"{result.seed}); the {settings.draws} training sets of each size are drawn from the pool, so large ones overlap "
        "and their spread is smaller than that of independent sets. The data set has several images by each writer, so "
        "test images can be by writers trained on. The program uses test images for nothing but the accuracies.",
    ]
