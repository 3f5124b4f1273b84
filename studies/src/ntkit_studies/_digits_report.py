"""The report of the digits experiment: accuracies, kernels, and wide networks in training compared with their limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.plots import CurveStyle, new_figure, plot_accuracy, plot_heat_map, plot_losses, plot_predictions, plot_shares

from ._digits_cells import METHODS, Cell, Features, Fit, Found, KernelFound, KernelView, Limit, Settings, Share, Wide
from ._digits_features import FeaturesFound, features_picture, features_table
from ._digits_pair import LimitFound, NetworkFound
from .plots import Picture, Section, Table, plot_width_errors
from .skeleton import Report, Results

__all__ = ["accuracies", "report_of"]

DigitsResults = Results[Settings, Cell, Found]

# Okabe and Ito's colours, which colour-blind readers can distinguish. One colour for a network's kernel (solid line) and
# the same network trained (dashed); dotted lines for the methods without a network.
_STYLES = {
    "NTK": CurveStyle("#0072B2", "-", "o"),
    "NNGP": CurveStyle("#56B4E9", "-", "s"),
    "CNTK, flatten": CurveStyle("#E69F00", "-", "^"),
    "CNTK, average pooling": CurveStyle("#D55E00", "-", "D"),
    "label-aware NTK": CurveStyle("#0072B2", "-.", "h"),
    "CNN, flatten": CurveStyle("#E69F00", "--", "v"),
    "CNN, average pooling": CurveStyle("#D55E00", "--", "P"),
    "RBF SVM": CurveStyle("#000000", ":", "X"),
    "RBF kernel ridge": CurveStyle("#009E73", ":", "p"),
    "random forest": CurveStyle("#CC79A7", ":", "*"),
}


def accuracies(results: DigitsResults) -> dict[str, NDArray[Any]]:
    """Return the accuracies of the methods that are done, shape (sizes, draws)."""
    settings = results.settings
    found: dict[str, NDArray[Any]] = {}
    for method in METHODS:
        if Fit(method, settings.sizes[0], 0) not in results.values:
            continue
        rows = []
        for size in settings.sizes:
            own = [results.values[Fit(method, size, draw)] for draw in range(settings.draws)]
            rows.append([one.accuracy for one in own if isinstance(one, Share)])
        found[method] = np.array(rows)
    return found


def report_of(results: DigitsResults) -> Report:
    """Return the report, the first one without the networks that are still in training."""
    settings, accuracy = results.settings, accuracies(results)
    kernels = {
        cell.kernel: found
        for cell, found in results.values.items()
        if isinstance(cell, KernelView) and isinstance(found, KernelFound)
    }
    introduction = (
        "" if Limit() in results.values else "The networks are still in training: load this page again soon. "
    )
    introduction += (
        "What ntkit computes, on scikit-learn's 8x8 handwritten digits: the exact kernels of infinitely wide networks as "
        f"classifiers on {settings.sizes[0]} to {settings.sizes[-1]} images, beside the same networks at finite width and "
        "classifiers that use no network; and what the kernels say of networks in training before one is trained."
    )
    sections = [
        Section(
            "Accuracy on small training sets",
            [_reading(settings, accuracy), _table(settings, accuracy), _curves(settings, accuracy)],
        ),
        *_network_sections(results),
        Section("The kernels", [_heat_maps(kernels), _spectra(kernels)]),
        Section("Time", [_times(results)]),
        Section("How it was made", _methods(results)),
    ]
    return Report("ntkit on handwritten digits", introduction, sections)


def _network_sections(results: DigitsResults) -> list[Section]:
    """Return what needs networks in training; nothing before they are done."""
    settings, limit = results.settings, results.values.get(Limit())
    if not isinstance(limit, LimitFound):
        return []
    networks: dict[int, list[NetworkFound]] = {width: [] for width in settings.widths}
    for cell, found in results.values.items():
        if isinstance(cell, Wide) and isinstance(found, NetworkFound):
            networks[cell.width].append(found)
    features = {
        cell.variance: found
        for cell, found in results.values.items()
        if isinstance(cell, Features) and isinstance(found, FeaturesFound)
    }
    first, second = settings.classes
    return [
        Section(f"A band of uncertainty, from a {first} to an {second}", [_band(settings, limit, networks)]),
        Section("Finite and infinite width", [_widths(settings, networks)]),
        Section("The dynamics of training", [_dynamics(limit, networks)]),
        Section("Labels in the kernel", [_elasticity(settings, limit, networks)]),
        Section("Features that no kernel learns", [features_table(features), features_picture(features)]),
    ]


def _reading(settings: Settings, accuracy: Mapping[str, NDArray[Any]]) -> str:
    means = {name: float(values[-1].mean()) for name, values in accuracy.items()}
    best = max(means, key=means.__getitem__)
    error = (means[best] * (1 - means[best]) / settings.test) ** 0.5
    return (
        f"With {settings.sizes[-1]} training images {best} has the highest mean accuracy, {means[best]:.1%}. The "
        f"{settings.test} test images alone leave a standard error of {error:.1%} in such a number, so differences of less "
        "than about twice that rank nothing. This is a demonstration on one small data set, not a benchmark."
    )


def _table(settings: Settings, accuracy: Mapping[str, NDArray[Any]]) -> Table:
    rows = [[name, *map(_mean_and_deviation, values)] for name, values in accuracy.items()]
    caption = f"Test accuracy in % by number of training images: mean ± standard deviation over {settings.draws} training sets"
    return Table(["method", *(str(size) for size in settings.sizes)], rows, caption)


def _mean_and_deviation(shares: NDArray[Any]) -> str:
    if len(shares) < 2:
        return f"{100 * shares.mean():.1f}"
    return f"{100 * shares.mean():.1f}±{100 * shares.std(ddof=1):.1f}"


def _curves(settings: Settings, accuracy: Mapping[str, NDArray[Any]]) -> Picture:
    figure = new_figure(9.4, 5.2)
    plot_accuracy(figure.subplots(), settings.sizes, accuracy, _STYLES)
    return Picture(
        figure,
        "Accuracy against training size. Points are means over training sets and bars their standard deviations, as in the "
        "table. A network's kernel and the same network trained share a colour. Points are moved apart sideways a little.",
        "Line plot of test accuracy against the number of training images, one line per method; the table has the numbers.",
    )


def _band(settings: Settings, limit: LimitFound, networks: Mapping[int, list[NetworkFound]]) -> Picture:
    width = settings.widths[-1]
    outputs = np.array([one.outputs for one in networks[width]])
    figure = new_figure(10.5, 3.6)
    axes = figure.subplots(1, len(limit.times), sharex=True, sharey=True, squeeze=False)[0]
    path = np.linspace(0, 1, len(limit.mean[0]))
    for number, (ax, step) in enumerate(zip(axes, settings.steps, strict=True)):
        title = f"after {step} steps" if step else "before training"
        plot_predictions(ax, path, limit.mean[number], limit.std[number], networks=outputs[:, number], title=title)
        ax.set_xlabel(f"from a {settings.classes[0]} (0) to an {settings.classes[1]} (1)")
        ax.set_ylabel("" if number else "output")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return Picture(
        figure,
        f"Networks learn to say -1 for a {settings.classes[0]} and +1 for an {settings.classes[1]} from {settings.pair} images. "
        "The images along the axis fade from one test image into another. Blue: mean and two standard deviations of the "
        f"Gaussian process that infinitely wide networks are at that time, from the kernels alone. Dashed: {len(outputs)} "
        f"networks of width {width}, trained.",
        "Panels of predictions along a path of images with bands: before training around zero, then from -1 to +1.",
    )


def _widths(settings: Settings, networks: Mapping[int, list[NetworkFound]]) -> Picture:
    figure = new_figure(7, 4.2)
    errors = [[one.kernel_error for one in networks[width]] for width in settings.widths]
    plot_width_errors(figure.subplots(), settings.widths, {"tangent kernel": errors}, "relative error at the start")
    return Picture(
        figure,
        f"How far the tangent kernel of a random network is from the exact one, on {settings.pair} images: root mean squares "
        "over networks, single networks faint, and a fitted power law. Theory has the exponent -1/2.",
        "A falling straight line of error against width on logarithmic axes.",
    )


def _dynamics(limit: LimitFound, networks: Mapping[int, list[NetworkFound]]) -> Picture:
    figure = new_figure(7, 4.2)
    losses: dict[str, Any] = {"infinite width, from the kernels": limit.losses}
    styles = {"infinite width, from the kernels": CurveStyle("#0072B2", "-", "")}
    for (width, own), color in zip(networks.items(), ("#CC79A7", "#E69F00", "#009E73", "#56B4E9"), strict=False):
        name = f"networks of width {width}"
        losses[name] = np.array([one.losses for one in own]).T
        styles[name] = CurveStyle(color, "--", "o")
    plot_losses(figure.subplots(), limit.loss_times, losses, styles)
    return Picture(
        figure,
        "Training loss over time: what the kernels expect before anything is trained, and networks of several widths (mean, "
        "and a band from the 10th to the 90th percentile).",
        "Falling curves of training loss against time on logarithmic axes, one for the limit and one per width.",
    )


def _elasticity(settings: Settings, limit: LimitFound, networks: Mapping[int, list[NetworkFound]]) -> Table:
    rows = [
        ["exact tangent kernel", f"{100 * limit.elasticity:.2f}", "–"],
        ["label-aware kernel", f"{100 * limit.label_aware_elasticity:.2f}", "–"],
    ]
    for width, own in networks.items():
        before, after = (
            _mean_and_deviation(np.array(one))
            for one in ([net.elasticity for net in own], [net.trained_elasticity for net in own])
        )
        rows.append([f"network of width {width}", before, after])
    caption = (
        "Relative ratio RR in % (Chen, He, Su 2020) on test images: at 50 a kernel finds images of one digit no more alike than "
        "images of two. Where training raises it, the network's kernel has learnt the labels, which the exact kernel of infinite "
        f"width cannot; the label-aware one (strength 0.1) has seen those of the {settings.pair} training images. Networks: mean "
        f"± standard deviation over {settings.members}"
    )
    return Table(["kernel", "RR", "after training"], rows, caption)


def _heat_maps(kernels: Mapping[str, KernelFound]) -> Picture:
    figure = new_figure(10, 4.6)
    for ax, name in zip(figure.subplots(1, 2), ("NTK", "CNTK, average pooling"), strict=True):
        plot_heat_map(ax, kernels[name].cosines, kernels[name].classes, title=name, normalize=False)
    return Picture(
        figure,
        f"Kernels of {len(kernels['NTK'].classes)} images, sorted by class and divided by sqrt(K(x, x) K(x', x')). Bright "
        "blocks on the diagonal are classes whose images the kernel finds alike. Colours span the 2nd to the 98th percentile of "
        "each kernel, so the two scales differ: averaging over positions makes all images look more alike.",
        "Two heat maps of kernel matrices with ten blocks along the diagonal, one per class.",
    )


def _spectra(kernels: Mapping[str, KernelFound]) -> Picture:
    figure = new_figure(7, 4.4)
    plot_shares(figure.subplots(), {name: found.shares for name, found in kernels.items()}, _STYLES)
    return Picture(
        figure,
        "Eigenvalues of the kernel matrices of the pool, largest first, as shares of their sum. Gradient descent learns the part "
        "of the labels along an eigenvector at the speed of its eigenvalue, so a steep spectrum learns few directions early.",
        "Log-log plot of the eigenvalues of four kernels against rank.",
    )


def _times(results: DigitsResults) -> Table:
    totals: dict[str, float] = {}
    for cell, seconds in results.seconds.items():
        match cell:
            case KernelView(kernel):
                name = f"kernel matrix: {kernel}"
            case Limit():
                name = "band, dynamics and elasticity of the limit"
            case Wide(width, _):
                name = f"networks of width {width}, with their kernels"
            case Features():
                name = "networks that learn features"
            case Fit(method, _, _):
                name = f"fits: {method}"
        totals[name] = totals.get(name, 0.0) + seconds
    caption = "Seconds of one thread; as many cells at a time as there are cores"
    return Table(["what", "seconds"], [[name, f"{total:.2f}"] for name, total in totals.items()], caption)


def _methods(results: DigitsResults) -> list[str]:
    settings = results.settings
    return [
        "NTK and NNGP are the kernels of a fully connected ReLU network of three hidden layers; CNTK is the NTK of two 3x3 "
        "convolutions with ReLU whose head reads every position (flatten) or their average (average pooling). Weights "
        "have gain √2 and biases 0. Classes are predicted by kernel regression on centred one-hot targets with no ridge: "
        "nothing is tuned. The label-aware NTK adds a regression of equal labels on features of pairs (LANTK-FJLT-V1 of Chen, "
        "He and Su 2020), its strength chosen by cross-validation on the training images.",
        f"The finite CNNs have {settings.channels} channels and He's initialisation (gain √2, as the kernels), and are trained "
        "by Adam on cross-entropy (batches of 50, learning rate 0.01) until the loss of the training images is below 0.05: one "
        "run per training set, no augmentation. The rate was chosen by the training loss, the stop to save time. With a fixed "
        "number of steps the network with average pooling, which learns slowest, would be undertrained on the larger sets. "
        "These are not the best such networks. SVM and kernel ridge choose width and regularisation by cross-validation on the "
        "training images (up to five folds). The forest has 100 trees.",
        "The networks of the band, of finite width and of the dynamics are fully connected with two hidden ReLU layers in the "
        "NTK parametrisation, trained on the squared error by gradient descent, all layers, at a quarter of the largest stable "
        "learning rate of the limit.",
        "The networks that learn features have the same layers and no gains: weights have variance 1/inputs, times the stated "
        "number in the first layer, and are trained by gradient descent on the mean squared error (rate 0.05, 400 steps).",
        f"A pool of {settings.pool} images and the test images are drawn with equally many of each class (seed {results.seed}); "
        f"the {settings.draws} training sets of each size are drawn from the pool, so large ones overlap and their spread is "
        "smaller than that of independent sets. The data set has several images by each writer, so test images can be by "
        "writers trained on. The program uses test images for nothing but the accuracies and the pictures.",
    ]
