"""Local elasticity during training, for several label systems of the same points."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from ntkit import Record, Schedule, empirical, local_elasticity, train
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import Progress, measuring, part_of
from ntkit.results import Trajectory

from ._classes import check_labels, check_module

__all__ = ["ElasticityCourse", "elasticity_course"]

_TAKEN = ("observe", "observe_at", "resume", "checkpoint", "checkpoint_every", "x_test")


@dataclass(frozen=True, eq=False)
class ElasticityCourse:
    """RR of the tangent kernels of networks, each trained on one label system.

    Attributes
    ----------
    systems
        Names of the s label systems.
    steps, times
        Steps and times of the m records, shape (m,).
    train
        RR of train-train pairs, shape (s, s, m): system trained on, system measured by, record. float64.
    test
        RR of test-train pairs, likewise; None without test points.
    losses
        L of each network, shape (s, m).
    modules
        The trained networks, by the system they were trained on.
    """

    systems: tuple[str, ...]
    steps: Tensor
    times: Tensor
    train: Tensor
    test: Tensor | None
    losses: Tensor
    modules: dict[str, nn.Module]


def elasticity_course(
    module: nn.Module,
    x: Tensor,
    labels: Mapping[str, Tensor],
    *,
    x_test: Tensor | None = None,
    labels_test: Mapping[str, Tensor] | None = None,
    record: Sequence[float] | None = None,
    progress: Progress | None = None,
    diagonal: bool = False,
    **training: Any,
) -> ElasticityCourse:
    r"""Train a copy of a network on each label system, and measure the local elasticity of its tangent kernel meanwhile.

    For the kernel :math:`K_t(x, x') = \langle \partial_w f(x, w_t), \partial_w f(x', w_t) \rangle` of each network the
    relative ratio :math:`\mathrm{RR}(K_t)` (:func:`ntkit.local_elasticity`) is measured by every label system, its own and the
    others: a network becomes locally elastic for the labels it learns (Chen, He, Su 2020 [1]_, Fig. 1b, 1c and D.1).

    Parameters
    ----------
    module
        The network from which every training run starts; it is copied and does not change. It has either one output, for systems
        of two classes, or one output per class.
    x
        Training points, shape (n, ...).
    labels
        Classes of the training points by the name of the system, shape (n,), any numbers. Targets for squared error are -1 and
        +1 for one output and the indicator of the class for more; for cross-entropies they are the classes.
    x_test, labels_test
        Further points and their classes in every system, to measure RR of test-train pairs too. Default None.
    record
        Steps (times, for the flow) at which to measure, in addition to the start and the end. Default None: only those two.
    progress
        Called after each step with the steps done and their total, over all systems; for the flow, with thousandths of the
        time. Default None.
    diagonal
        Whether a point paired with itself counts, as in :func:`ntkit.local_elasticity`.
    training
        The fields of an :class:`ntkit.Schedule` (``lr`` is short for ``learning_rate``), or ``schedule=`` itself; and further
        arguments of :func:`ntkit.train`: ``loss``, ``kappa``, ``centre``, ``stop_below``; time is that of the summed loss. A
        wide network hardly moves, and its kernel with it; a small ``kappa`` makes it move.

    Returns
    -------
    ElasticityCourse

    See Also
    --------
    ntkit.local_elasticity : RR of one kernel.
    ntkit_studies.plots.plot_elasticity : Draws the course.

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = ntkit.parametrize_ntk(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1)))
    >>> net = ntkit.initialize(net, generator=torch.Generator().manual_seed(0))
    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [2.0, 1.0], [-2.0, -1.0]])
    >>> labels = {"left": x[:, 0] < 0, "low": x[:, 1] < 0}
    >>> course = elasticity_course(net, x, labels, lr=0.05, steps=100, record=[10])
    >>> course.systems, course.steps, course.train.shape
    (('left', 'low'), tensor([  0,  10, 100]), torch.Size([2, 2, 3]))
    """
    _check(module, x, labels, x_test, labels_test, training)
    test = dict(labels_test or {})

    def ratios(net: nn.Module) -> Tensor:
        ntk = empirical(net).ntk
        gram = ntk(x).double()
        found = [[local_elasticity(gram, y, diagonal=diagonal) for y in labels.values()]]
        if x_test is not None:
            cross, diag_test = ntk(x_test, x).double(), ntk.diag(x_test).double()
            diag = gram.diagonal()
            found.append([local_elasticity(cross, test[name], y, diag_test, diag) for name, y in labels.items()])
        return torch.stack([torch.stack(row) for row in found]).cpu()

    with torch.no_grad(), measuring(module):
        outputs = module(x[:1]).flatten(1).shape[1]
    schedule = _schedule(training)
    runs: list[Trajectory] = []
    modules: dict[str, nn.Module] = {}
    for number, (name, y) in enumerate(labels.items()):
        modules[name] = copy.deepcopy(module)
        report = part_of(progress, number, len(labels))
        target = _target(name, y, outputs, training.get("loss", "mse"), x)
        recorded = Record(record or (), observe={"rr": ratios})
        runs.append(train(modules[name], x, target, schedule, record=recorded, progress=report, **training))
    if len({len(run.steps) for run in runs}) > 1:
        raise InputError("stop_below ended the networks at different records. Leave it out to compare them over time.")
    measured = torch.stack([run.observations["rr"] for run in runs])  # (s, m, 1 or 2, s)
    series = measured.permute(2, 0, 3, 1)
    return ElasticityCourse(
        tuple(labels),
        runs[0].steps,
        runs[0].times,
        series[0].contiguous(),
        series[1].contiguous() if x_test is not None else None,
        torch.stack([run.losses for run in runs]),
        modules,
    )


def _schedule(training: dict[str, Any]) -> Schedule:
    """Extract the fields of a schedule, or the schedule itself, from the arguments."""
    names = {"lr": "learning_rate"} | {entry.name: entry.name for entry in fields(Schedule)}
    given = {new: training.pop(name) for name, new in names.items() if name in training}
    schedule = training.pop("schedule", None)
    return schedule if isinstance(schedule, Schedule) else Schedule(**given)


def _target(name: str, y: Tensor, outputs: int, loss: object, x: Tensor) -> Tensor:
    numbers: Tensor
    found, numbers = torch.unique(y, return_inverse=True)
    classes = len(found)
    if classes != max(outputs, 2):
        expected = "two classes" if outputs == 1 else f"{outputs} classes, one for each output"
        raise InputError(f"the labels of {name!r} must be of {expected}. Got {classes}.")
    if loss == "cross_entropy":
        return numbers
    if outputs == 1:
        column = numbers.to(x.dtype)[:, None]
        return column if loss == "binary_cross_entropy" else 2 * column - 1
    return torch.nn.functional.one_hot(numbers, outputs).to(x.dtype)


def _check(
    module: nn.Module,
    x: Tensor,
    labels: Mapping[str, Tensor],
    x_test: Tensor | None,
    labels_test: Mapping[str, Tensor] | None,
    training: Mapping[str, Any],
) -> None:
    check_module(module)
    if not isinstance(x, Tensor) or not isinstance(x_test, Tensor | None):
        raise InputTypeError("x and x_test must be tensors of points, shape (n, ...).")
    if not isinstance(labels, Mapping) or not labels:
        raise InputError('labels must name at least one label system, {"animal": y}. Got none.')
    for taken in _TAKEN:
        if taken in training:
            raise InputError(
                f"{taken} must be left out: the course needs it, or copies of the module that it would mix up."
            )
    for name, y in labels.items():
        check_labels(f"labels[{name!r}]", y, len(x))
    if (x_test is None) != (labels_test is None):
        raise InputError("x_test and labels_test go together: the points, and their classes in every label system.")
    if x_test is not None and labels_test is not None:
        if set(labels_test) != set(labels):
            raise InputError(
                f"labels_test must have the systems of labels, {sorted(labels)}. Got {sorted(labels_test)}."
            )
        for name, y in labels_test.items():
            check_labels(f"labels_test[{name!r}]", y, len(x_test))
