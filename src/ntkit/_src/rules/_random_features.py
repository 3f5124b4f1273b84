"""Random features of a program, operation by operation: phi for the NNGP kernel, psi for the tangent kernel."""

from __future__ import annotations

from torch import Tensor

from ntkit._src.program import Program
from ntkit.errors import Problem, UnsupportedLayerError

from ._covariance import Moments
from ._engine import read_data
from ._plan import plan_of
from ._sketch import Draws, Features


def random_features(program: Program, x: Tensor, ntk: bool, draws: Draws) -> Tensor:
    """Return features of a batch whose products estimate Theta, or K if ``ntk`` is False, shape (n, d).

    They are those of Zandieh et al. 2021 and Han et al. 2022.
    """
    data = Moments({key: value.to(x.dtype) for key, value in read_data(program, x).data.items()})
    values: list[Features] = []
    for step in plan_of(program).steps:
        inputs = tuple(values[read] for read in step.node.inputs)
        values.append(step.rule.random_features(step, inputs, data, draws))
    phi, psi = values[-1].phi, values[-1].psi
    if not ntk:
        return phi
    return phi.new_zeros(len(x), 1) if psi is None else psi


def check_sketchable(program: Program) -> None:
    """Refuse operations without random features, naming all of them."""
    use_instead = "write method='jacobian', the projected derivatives of the module itself"
    problems = tuple(
        Problem(step.node.path, step.op.label(), reason, use_instead)
        for step in plan_of(program).steps
        if (reason := step.rule.without_random_features(step)) is not None
    )
    if problems:
        raise UnsupportedLayerError(problems)
