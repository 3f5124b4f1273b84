"""Train, convexify, train: averaged weights first, then linear regression on the tangent features of that network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ntkit import solve
from ntkit.errors import NotFittedError
from ntkit.extending import LossFunction, Progress, check_batches, check_gram_memory, check_integer, check_number

from ._averaging import FederatedAveraging
from ._coordinates import draw_coordinates
from ._worker import Worker

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["TrainConvexifyTrain"]


class TrainConvexifyTrain:
    r"""Federated averaging, then one exact federated linear regression on tangent features (Yu et al. 2022).

    Averaging finds good features but, with data that differ between workers, a poor classifier. So stage one is
    :class:`FederatedAveraging`; stage two linearises the network there, whose training is a convex problem: ridge regression on
    derivatives :math:`\phi(x) = (\partial f_o(x) / \partial \theta_p)_{(o, p) \in S}` of some outputs in some weights. Yu et al.
    solve it by further rounds; a linear regression needs only :math:`\sum_w \phi_w^T \phi_w` and :math:`\sum_w \phi_w^T y_w`, so
    one round is exact here, and its result does not depend on how the data are distributed.

    Parameters
    ----------
    module, workers, loss, learning_rate, epochs, batch_size, client, seed
        As in :class:`FederatedAveraging`, for stage one.
    features : int
        :math:`|S|`, drawn at random from all pairs of an output and an entry of a trained parameter; ``coordinates_`` names them.
        Default 1000.
    ridge : float
        Relative to the mean of the diagonal of the features' second moments. Default 1e-3.

    Attributes
    ----------
    module : nn.Module
        The network after stage one.
    coordinates_ : tuple of Coordinate
        The features.
    mean_, scale_ : Tensor of shape (features,)
        Means and standard deviations of the features over all workers, for centring and scaling.
    coefficients_ : Tensor of shape (features, k)
        Coefficients of the regression.
    intercept_ : Tensor of shape (k,)
        The mean of the targets.

    Notes
    -----
    What leaves a worker in stage one: its weights after local training, in every round. In stage two: sums of its features, of
    their products (``features`` squared numbers) and of their products with the targets, not single derivatives. With fewer
    points than features these sums still determine the span of the features.

    See Also
    --------
    FederatedNTK : no averaging at all.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit_studies.methods import TrainConvexifyTrain, Worker
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(60, 4)
    >>> y = (x[:, 0] * x[:, 1] > 0).long()
    >>> order = y.argsort()  # one worker has one class, the other the other
    >>> workers = [Worker(x[part], y[part]) for part in (order[:30], order[30:])]
    >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    >>> tct = TrainConvexifyTrain(net, workers, features=200).fit(rounds=3)
    >>> float((tct.predict(x).argmax(1) == y).float().mean()) > 0.9
    True
    """

    def __init__(
        self,
        module: nn.Module,
        workers: Sequence[Worker],
        *,
        features: int = 1000,
        ridge: float = 1e-3,
        loss: str | LossFunction = "cross_entropy",
        learning_rate: float = 0.1,
        epochs: int = 1,
        batch_size: int = 32,
        client: Client | None = None,
        seed: int = 0,
    ) -> None:
        check_integer("features", features, 1)
        self.averaging = FederatedAveraging(
            module, workers, loss=loss, learning_rate=learning_rate, epochs=epochs, batch_size=batch_size, client=client,
            seed=seed,
        )  # fmt: skip
        self.features, self.ridge, self.seed = features, check_number("ridge", ridge, 0), seed
        self.coefficients_: Tensor | None = None

    @property
    def module(self) -> nn.Module:
        """The network of stage one."""
        return self.averaging.module

    def fit(self, rounds: int = 10, progress: Progress | None = None) -> TrainConvexifyTrain:
        """Run rounds of averaging (zero to keep the current module), then the regression."""
        self.averaging.fit(rounds, progress)
        self.module.eval()
        self.regress()
        return self

    def regress(self) -> None:
        """Run stage two at the current weights of the network."""
        places, loss = self.averaging.places, self.averaging.loss
        start = torch.cat(places.each("outputs", self.module, what="in stage two"))
        self.coordinates_ = draw_coordinates(self.module, start[0].numel(), self.features, self.seed)
        m, n = len(self.coordinates_), sum(places.sizes)
        check_gram_memory(m, m, torch.float64, matrices=3, what="a regression on tangent features")
        sums: list[Any] = places.each("feature_sums", self.module, self.coordinates_, loss, what="in stage two")
        first, second, mixed, targets = (sum(part[index] for part in sums) for index in range(4))
        self.mean_, self.intercept_ = first / n, targets / n
        centred = second - torch.outer(first, first) / n
        deviations = (centred.diagonal().clamp_min(0) / n).sqrt()
        rounding = 1e-10 * (second.diagonal() / n).sqrt()
        self.scale_ = torch.where(
            deviations > rounding, deviations, torch.inf
        )  # a constant feature carries no information
        gram = centred / torch.outer(self.scale_, self.scale_)
        right = (mixed - torch.outer(first, self.intercept_)) / self.scale_[:, None]
        known = torch.isfinite(self.scale_)
        coefficients = torch.zeros_like(right)
        if bool(known.any()):
            coefficients[known] = solve(gram[known][:, known], right[known], ridge=self.ridge).value
        self.coefficients_ = coefficients

    def predict(self, x: Tensor) -> Tensor:
        """Return the outputs, shape (n, k), in the dtype of the module."""
        if self.coefficients_ is None:
            raise NotFittedError("this TrainConvexifyTrain has no regression yet: call fit(rounds) first.")
        check_batches(x, None)
        features = Worker(x, x).tangent_features(self.module, self.coordinates_).double()
        values: Tensor = ((features - self.mean_) / self.scale_) @ self.coefficients_ + self.intercept_
        return values.to(x.dtype)
