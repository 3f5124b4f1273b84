"""How a network is trained: the method, its step size, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from ntkit._src.common import check_choice, check_generator, check_integer, check_number
from ntkit.errors import InputError

Method = Literal["gd", "momentum", "sgd", "adam", "flow"]


@dataclass(frozen=True, eq=False)
class Schedule:
    r"""The method of a training run, its step size, and how long it runs.

    Time is that of gradient flow :math:`\theta' = -\nabla L` of the loss **summed** over the training points: a step of size
    :math:`\eta` takes the time :math:`\eta`.

    Attributes
    ----------
    method
        ``"gd"``: gradient descent; ``"momentum"``: heavy ball; ``"sgd"``: minibatches, every point once per epoch, gradients
        scaled by n / batch size; ``"adam"``; ``"flow"``: gradient flow by an embedded Runge-Kutta pair of orders 5 and 4
        (Dormand and Prince 1980) with controlled error. Default ``"gd"``.
    learning_rate, steps
        The step size and the number of steps of every method except the flow. Default None.
    time
        How long the flow runs. Default None.
    momentum
        For ``"momentum"``: at least 0 and below 1. Default None.
    batch_size, generator
        For ``"sgd"``: the number of points in a minibatch, and the generator, on the CPU, that draws them. Default None.
    rtol, atol
        For ``"flow"``: the norm of a step's error is at most ``rtol`` times the norm of theta - theta_0, plus ``atol``.
        Defaults 1e-6 and 1e-9.

    See Also
    --------
    ntkit.train : takes a schedule.
    ntkit.Descent : gradient descent of kernels, :class:`ntkit.GradientFlow`.

    Examples
    --------
    >>> from ntkit import Schedule
    >>> Schedule("flow", time=10.0).end
    10.0
    >>> Schedule(learning_rate=0.1, steps=100).end
    100.0
    """

    method: Method = "gd"
    learning_rate: float | None = None
    steps: int | None = None
    time: float | None = None
    momentum: float | None = None
    batch_size: int | None = None
    generator: torch.Generator | None = None
    rtol: float = 1e-6
    atol: float = 1e-9

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))
        for name, needed in (
            ("learning_rate", not self.is_flow),
            ("steps", not self.is_flow),
            ("time", self.is_flow),
            ("momentum", self.method == "momentum"),
            ("batch_size", self.method == "sgd"),
            ("generator", self.method == "sgd"),
        ):
            given = getattr(self, name) is not None
            if needed and not given:
                raise InputError(f'method="{self.method}" needs {name}. Got None.')
            if given and not needed:
                raise InputError(f'{name} must be left out with method="{self.method}": it has no effect there.')
        check_generator(self.generator)
        if self.is_flow:
            check_number("time", self.time, 0.0)
        else:
            check_integer("steps", self.steps, 0)
            check_number("learning_rate", self.learning_rate, 0.0, positive=True)
        if self.momentum is not None and not check_number("momentum", self.momentum, 0.0) < 1:
            raise InputError(f"momentum must be below 1. Got {self.momentum}.")
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, 1)
        check_number("rtol", self.rtol, 0.0, positive=True)
        check_number("atol", self.atol, 0.0)

    @property
    def is_flow(self) -> bool:
        """Whether this is gradient flow, whose progress is measured in time; that of the others is measured in steps."""
        return self.method == "flow"

    @property
    def end(self) -> float:
        """The last step, or the last time of the flow."""
        return float((self.time if self.is_flow else self.steps) or 0)

    def shared(self) -> dict[str, Any]:
        """Return the settings that a resumed run must share with the interrupted one."""
        names = ("method", "learning_rate", "momentum", "batch_size", "rtol", "atol")
        return {name: getattr(self, name) for name in names}
