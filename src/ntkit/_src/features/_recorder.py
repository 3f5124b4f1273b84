"""The neural feature ansatz along training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit._src.common import check_integer, evaluation_mode
from ntkit._src.finite import Trajectory
from ntkit.errors import InputError

from ._correlation import Kind, check_kind, correlation
from ._layers import check_batch_size, check_measurable, find_layers, row_bytes
from ._matrices import AUTOMATIC_BYTES, add_products, sandwich
from ._nfa import MEASURES, NFA, record
from ._passes import dense_weight, run

Loss = float | Tensor | Callable[[], float | Tensor]


@dataclass(frozen=True)
class History:
    """The measures at m moments of training.

    Attributes
    ----------
    steps
        Steps taken, shape (m,), int64.
    layers
        Paths of the layers.
    measures
        By layer and then by the name of a field of :class:`NFA`, shape (m,); nan where undefined.
    losses
        By name, shape (m,); nan where it was not given.
    kind
        Kind of the correlations.
    """

    steps: NDArray[np.int64]
    layers: tuple[str, ...]
    measures: dict[str, dict[str, NDArray[np.float64]]]
    losses: dict[str, NDArray[np.float64]]
    kind: Kind

    def rows(self) -> list[dict[str, Any]]:
        """Return a table with one row per moment and layer: ``pandas.DataFrame(history.rows())``."""
        return [
            {"step": int(step), "layer": layer}
            | {name: float(values[index]) for name, values in self.measures[layer].items()}
            | {f"{name} loss": float(values[index]) for name, values in self.losses.items()}
            for index, step in enumerate(self.steps)
            for layer in self.layers
        ]

    def scaled_losses(self) -> dict[str, NDArray[np.float64]]:
        """Return each loss divided by its maximum, as the paper plots them."""
        return {
            name: values / np.nanmax(values) if np.nanmax(values, initial=0) > 0 else values
            for name, values in self.losses.items()
        }


class Recorder:
    """Measures the neural feature ansatz of a module every few steps of its training.

    The start is recorded when the recorder is created. In your own training loop, call :meth:`step` after every step; with
    :func:`ntkit.train` pass ``observe={"nfa": recorder.observe}`` and then call :meth:`adopt`.

    Parameters
    ----------
    module
        The module to train. Its present weights are W_0. It is measured in evaluation mode, whatever its mode, and left as it
        was: modes, buffers such as running statistics, gradients.
    x
        Samples to measure on, shape (n, ...): usually the training data.
    every
        Number of steps between measurements.
    layers, batch_size, kind
        As for :func:`nfa`.
    derivatives
        Whether to keep the initial derivatives J_0 too, n * c * P * out numbers per layer, which the double-centred and
        PTK-centred measures need; without them these are nan.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit import features
    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> x, y = torch.randn(16, 2), torch.randn(16, 1)
    >>> recorder = features.Recorder(net, x, every=5)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    >>> for _ in range(10):
    ...     loss = (net(x) - y).square().mean()
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     recorder.step(train=loss)
    >>> recorder.history.steps, recorder.history.measures["0"]["uncentred"].shape
    (array([ 0,  5, 10]), (3,))
    """

    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        every: int = 1,
        layers: Sequence[str] | None = None,
        kind: Kind = "cosine",
        batch_size: int | None = None,
        derivatives: bool = False,
    ) -> None:
        check_kind(kind)
        check_batch_size(batch_size)
        check_integer("every", every, 1)
        self._layers = find_layers(module, layers)
        self.module, self.every, self.kind = module, every, kind
        self._derivatives: list[list[dict[str, Tensor]]] | None = None
        with evaluation_mode(module):
            look = check_measurable(module, x, self._layers)
            self._batches = x.detach().split(batch_size or max(1, AUTOMATIC_BYTES // row_bytes(look, self._layers)))
            self._start = {path: dense_weight(layer) for path, layer in self._layers.items()}
            if derivatives:
                self._derivatives = [
                    [
                        {path: J.clone() for path, J in jacobians.items()}
                        for jacobians in run(module, part, self._layers).jacobians()
                    ]
                    for part in self._batches
                ]
        self._n = len(x)
        self._taken = 0
        self._steps: list[int] = []
        self._records: list[dict[str, NFA]] = []
        self._losses: list[dict[str, float]] = []
        self._latest: tuple[tuple[int, ...], dict[str, float]] | None = None
        self._keep(0, self.measure(), {})

    @property
    def layers(self) -> tuple[str, ...]:
        """Paths of the layers measured."""
        return tuple(self._layers)

    def step(self, **losses: Loss) -> None:
        """Count a step, and measure if it is time: call it after the optimiser's step.

        Parameters
        ----------
        **losses
            Losses to record with the measures, by name: numbers, tensors of one element, or functions without arguments,
            which are called only when recorded: ``recorder.step(train=loss, test=lambda: mse(net(x_test), y_test))``.
        """
        self._taken += 1
        if self._taken % self.every == 0:
            self._keep(self._taken, self.measure(), losses)

    def measure(self) -> dict[str, NFA]:
        """Measure the module's present state, without recording it."""
        covariance: dict[str, Tensor] = {}
        moved: dict[str, Tensor] = {}
        with evaluation_mode(self.module):
            for number, part in enumerate(self._batches):
                for output, jacobians in enumerate(run(self.module, part, self._layers).jacobians()):
                    add_products(covariance, jacobians)
                    if self._derivatives is not None:
                        initial = self._derivatives[number][output]
                        add_products(moved, {path: J - initial[path] for path, J in jacobians.items()})
            weights = {path: dense_weight(layer) for path, layer in self._layers.items()}
        return {
            path: record(
                weight,
                self._start[path],
                covariance[path] / self._n,
                moved[path] / self._n if path in moved else None,
                self.kind,
            )
            for path, weight in weights.items()
        }

    def uncentred(self) -> dict[str, float]:
        """Return the present uncentred correlation of every layer; a recorded measurement is reused while nothing changes."""
        if self._latest is not None and self._latest[0] == self._versions():
            return self._latest[1]
        covariance: dict[str, Tensor] = {}
        with evaluation_mode(self.module):
            for part in self._batches:
                for jacobians in run(self.module, part, self._layers).jacobians():
                    add_products(covariance, jacobians)
            weights = {path: dense_weight(layer) for path, layer in self._layers.items()}
        return {
            path: correlation(weight.T @ weight, sandwich(weight, covariance[path]), self.kind)
            for path, weight in weights.items()
        }

    def observe(self, module: nn.Module) -> Tensor:
        """Measure for :func:`ntkit.train`: ``train(..., record=ntkit.Record(observe={"nfa": recorder.observe}))``.

        Returns
        -------
        Tensor
            Shape (layers, measures), float64, in the order of ``recorder.layers`` and of the fields of :class:`NFA`.
        """
        if module is not self.module:
            raise InputError("the recorder must observe the module it was created for. Got another one.")
        found = self.measure()
        rows = [[getattr(found[path], name) for name in MEASURES] for path in self._layers]
        return torch.tensor(rows, dtype=torch.float64)

    def adopt(self, run: Trajectory, name: str = "nfa") -> None:
        """Replace the records by those of a run of :func:`ntkit.train` that :meth:`observe` watched.

        Its loss is recorded as "train".

        Parameters
        ----------
        run
            The result of ``train``.
        name
            Name of the observation.
        """
        if name not in run.observations:
            raise InputError(
                f"the run must have observed {name!r}. It observed {sorted(run.observations)}: write "
                f'train(..., record=ntkit.Record(observe={{"{name}": recorder.observe}})).'
            )
        self._steps, self._records, self._losses = [], [], []
        for index, values in zip(run.observed, run.observations[name], strict=True):
            found = {
                path: NFA(**dict(zip(MEASURES, row.tolist(), strict=True)), kind=self.kind)
                for path, row in zip(self._layers, values, strict=True)
            }
            self._keep(int(run.steps[index]), found, {"train": float(run.losses[index])})
        self._taken = int(run.state.step)

    @property
    def history(self) -> History:
        """Everything recorded so far."""
        names = list(dict.fromkeys(name for entry in self._losses for name in entry))
        return History(
            np.array(self._steps, dtype=np.int64),
            self.layers,
            {
                path: {
                    name: np.array([getattr(entry[path], name) for entry in self._records], dtype=np.float64)
                    for name in MEASURES
                }
                for path in self._layers
            },
            {name: np.array([entry.get(name, np.nan) for entry in self._losses], dtype=np.float64) for name in names},
            self.kind,
        )

    def _keep(self, step: int, found: dict[str, NFA], losses: dict[str, Loss]) -> None:
        self._steps.append(step)
        self._records.append(found)
        self._losses.append({name: _number(loss() if callable(loss) else loss) for name, loss in losses.items()})
        self._latest = (self._versions(), {path: measured.uncentred for path, measured in found.items()})

    def _versions(self) -> tuple[int, ...]:
        """Return numbers that change whenever a parameter or buffer is written to."""
        return tuple(tensor._version for tensor in (*self.module.parameters(), *self.module.buffers()))


def _number(loss: float | Tensor) -> float:
    return float(loss.detach()) if isinstance(loss, Tensor) else float(loss)
