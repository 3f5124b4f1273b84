"""Networks that share their training up to an epoch and then see batches in another order: how far they diverge."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit.diagnostics import KernelHistory, KernelRecorder, kernel_distance
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import Progress, check_integer, check_number, copy_module

from .._seeded import seeded
from ._classes import check_classes, check_module, check_points, error_rate, outputs_of, predicted
from ._error_barrier import error_barrier
from ._relu_patterns import pattern_distance, relu_patterns

__all__ = ["SpawnStudy", "spawn_study"]


@dataclass(frozen=True, eq=False)
class SpawnStudy:
    """Pairs of networks that diverged at s epochs.

    Attributes
    ----------
    spawn
        T, the epochs at which they diverged, shape (s,), int64.
    barrier
        Barrier of the test error between the two, shape (s,).
    kernel_distance
        Distance between their tangent kernels on the probe points, shape (s,).
    hamming
        The fraction of ReLUs that are active in one and inactive in the other, on probe points, shape (s,); NaN without ReLUs.
    disagreement
        The fraction of test points that they classify differently, shape (s,).
    errors
        Test errors of the two, shape (s, 2).
    parent
        The kernel of the network that they come from, epoch by epoch: its ``velocity`` is per epoch.
    """

    spawn: Tensor
    barrier: Tensor
    kernel_distance: Tensor
    hamming: Tensor
    disagreement: Tensor
    errors: Tensor
    parent: KernelHistory


def spawn_study(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    x_test: Tensor,
    y_test: Tensor,
    *,
    spawn: Sequence[int],
    epochs: int,
    learning_rate: float,
    batch_size: int = 64,
    momentum: float = 0.0,
    seed: int = 0,
    probe: int = 64,
    points: int = 21,
    output: str | int = "trace",
    progress: Progress | None = None,
) -> SpawnStudy:
    r"""Train pairs of networks that share the path to epoch T and then differ in the order of batches.

    Fort et al. 2020 [1]_ find two phases: children of an early epoch end in different valleys (a high error barrier, kernels
    far apart), those of a later one in the same valley, and the change falls together with that of the parent's kernel
    velocity (Golikov et al. 2022 [2]_, section 7). The numbers here may or may not confirm that.

    Parameters
    ----------
    module : nn.Module
        The network from which training starts, with one output for two classes or one per class; copied, not changed. Batch
        norms stay in training mode during training.
    x, x_test : Tensor of shape (n, ...), (n_test, ...)
        Training and test inputs.
    y, y_test : Tensor of shape (n,), (n_test,)
        Classes.
    spawn : sequence of int
        T: epochs at which children diverge, from 0 to ``epochs``.
    epochs : int
        All networks are trained to this epoch.
    learning_rate, batch_size, momentum : float, int, float
        Settings of stochastic gradient descent on the mean cross-entropy. Children inherit the momentum. Defaults 64 and 0.
    seed : int
        Seed of the orders of batches and of dropout. Default 0.
    probe : int
        Number of test points, the first ones, on which kernels and ReLU patterns are compared. Default 64.
    points : int
        Number of points on the line between two children. Default 21.
    output : str or int
        Outputs whose kernel is compared, as in :func:`ntkit.empirical`. Default ``"trace"``.
    progress : callable, optional
        Called with the number of epochs trained and the total. Default None.

    Returns
    -------
    SpawnStudy

    See Also
    --------
    error_barrier, ntkit.diagnostics.kernel_distance, ntkit.diagnostics.KernelRecorder

    References
    ----------
    .. [1] Fort et al., "Deep Learning versus Kernel Learning: an Empirical Study of Loss Landscape Geometry and the Time
       Evolution of the Neural Tangent Kernel", 2020.
    .. [2] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(60, 2)
    >>> y = (x.norm(dim=1) > 1.2).long()
    >>> net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    >>> study = spawn_study(
    ...     net, x[:40], y[:40], x[40:], y[40:], spawn=[0, 4], epochs=4, learning_rate=0.3, batch_size=8)
    >>> study.spawn, study.kernel_distance[1].item(), study.barrier.shape, study.parent.velocity.shape
    (tensor([0, 4]), 0.0, torch.Size([2]), torch.Size([5]))
    """
    check_module(module)
    check_points("x", x)
    check_points("x_test", x_test)
    moments = _check_numbers(spawn, epochs, learning_rate, batch_size, momentum, probe)
    targets = check_classes("y", y, outputs_of(module, x))
    targets_test = check_classes("y_test", y_test, outputs_of(module, x_test))
    probes, total = x_test[:probe], epochs + sum(2 * (epochs - T) for T in moments)
    done = 0

    def advance(run: _Training) -> None:
        nonlocal done
        run.epoch(x, targets, batch_size)
        done += 1
        if progress is not None:
            progress(done, total)

    with seeded(seed):  # from which dropout draws
        parent = _Training(copy_module(module), learning_rate, momentum, _seeded(seed, 0, 0))
        recorder = KernelRecorder(parent.net, probes, output=output)
        saved = {0: parent.copy()} if 0 in moments else {}
        for epoch in range(1, epochs + 1):
            advance(parent)
            recorder.step()
            if epoch in moments:
                saved[epoch] = parent.copy()
        rows = []
        for T in moments:
            pair = [saved[T].copy(_seeded(seed, T, child)) for child in (1, 2)]
            for run in pair:
                for _ in range(epochs - T):
                    advance(run)
            first, second = (run.net.eval() for run in pair)
            rows.append(_compare(first, second, x, x_test, targets_test, probes, points, output))
    table = torch.tensor(rows, dtype=torch.float64)
    barrier, distance, hamming, disagreement = table[:, :4].T
    return SpawnStudy(torch.tensor(moments), barrier, distance, hamming, disagreement, table[:, 4:], recorder.history)


class _Training:
    """A network with its optimiser and the generator of its batches."""

    def __init__(self, net: nn.Module, learning_rate: float, momentum: float, generator: torch.Generator) -> None:
        self.net, self.generator = net, generator
        self.optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=momentum)

    def epoch(self, x: Tensor, targets: Tensor, batch_size: int) -> None:
        self.net.train()
        for rows in torch.randperm(len(x), generator=self.generator).split(batch_size):
            rows = rows.to(x.device)
            outputs = self.net(x[rows]).reshape(len(rows), -1)
            if outputs.shape[1] == 1:
                wanted = targets[rows].to(outputs.dtype)
                loss = nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], wanted)
            else:
                loss = nn.functional.cross_entropy(outputs, targets[rows])
            if not bool(torch.isfinite(loss)):
                raise InputError("training diverged: the loss is not finite. Take a smaller learning rate.")
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def copy(self, generator: torch.Generator | None = None) -> _Training:
        """Copy weights and momentum; the order of batches comes from another generator if one is given."""
        group = self.optimizer.param_groups[0]
        twin = _Training(copy_module(self.net), group["lr"], group["momentum"], generator or self.generator)
        twin.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        return twin


def _compare(
    a: nn.Module,
    b: nn.Module,
    x: Tensor,
    x_test: Tensor,
    targets: Tensor,
    probes: Tensor,
    points: int,
    output: str | int,
) -> list[float]:
    """Return barrier, kernel distance, Hamming distance, disagreement and both errors of two networks."""
    outputs_a, outputs_b = outputs_of(a, x_test), outputs_of(b, x_test)
    gram_a, gram_b = (KernelRecorder(net, probes, output=output).measure().double() for net in (a, b))
    return [
        error_barrier(a, b, x_test, targets, points, x_train=x).barrier,
        float(kernel_distance(gram_a, gram_b)),
        pattern_distance(relu_patterns(a, probes), relu_patterns(b, probes)),
        float((predicted(outputs_a) != predicted(outputs_b)).double().mean()),
        error_rate(outputs_a, targets),
        error_rate(outputs_b, targets),
    ]


def _seeded(seed: int, epoch: int, child: int) -> torch.Generator:
    """Return the generator of one network's batches: 0 is the parent."""
    return torch.Generator().manual_seed(1_000_003 * seed + 7919 * epoch + child)


def _check_numbers(
    spawn: Sequence[int], epochs: int, learning_rate: float, batch_size: int, momentum: float, probe: int
) -> list[int]:
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("probe", probe)):
        check_integer(name, value, 1)
    check_number("learning_rate", learning_rate, positive=True)
    if not check_number("momentum", momentum, 0) < 1:
        raise InputError(f"momentum must be below 1. Got {momentum}.")
    if not isinstance(spawn, Sequence) or not all(isinstance(T, int) and not isinstance(T, bool) for T in spawn):
        raise InputTypeError(f"spawn must be a sequence of epochs. Got {spawn!r}.")
    moments = sorted(set(spawn))
    if not moments or moments[0] < 0 or moments[-1] > epochs:
        raise InputError(f"spawn must be epochs from 0 to {epochs}, at least one. Got {list(spawn)}.")
    return moments
