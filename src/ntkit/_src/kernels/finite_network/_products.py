"""Products of the tangent kernel with vectors, by a backward and a forward pass: the kernel is never formed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor
from torch.func import jvp

from ntkit._src.common import measuring, plain_attention

from ._jacobian import jacobian_diag
from ._network import Inputs, check_finite_output
from ._structured import structured_diag
from ._survey import Diagonal, Survey, Total, slices


def backward(survey: Survey, names: Sequence[str], x: Inputs, weights: Tensor) -> dict[str, Tensor]:
    """Return J(x)^T weights for weights (n, c), by parameter."""
    trained = survey.network.trained
    parameters = [trained[name] for name in names]
    totals = [torch.zeros_like(parameter) for parameter in parameters]
    for rows in _chunks(survey, len(x)):
        with torch.enable_grad():
            values = survey.network(x[rows])
            gradients = torch.autograd.grad(values, parameters, weights[rows], allow_unused=True)
        for total, gradient in zip(totals, gradients, strict=True):
            if gradient is not None:
                total += gradient
    return dict(zip(names, totals, strict=True))


def forward(survey: Survey, x: Inputs, tangents: dict[str, Tensor]) -> Tensor:
    """Return J(x) tangents, shape (n, c)."""
    trained = survey.network.trained
    parameters = {name: trained[name].detach() for name in tangents}
    results = []
    for rows in _chunks(survey, len(x)):

        def outputs(values: dict[str, Tensor], part: Inputs = x[rows]) -> Tensor:
            return survey.network(part, values)

        try:
            with torch.no_grad(), plain_attention():
                results.append(jvp(outputs, (parameters,), (tangents,))[1])
        except RuntimeError:  # a few torch operations have no forward mode, or write to tensors that it captures
            results.append(_forward_by_backward(outputs, parameters, tangents))
    return torch.cat(results)


def _forward_by_backward(
    outputs: Callable[[dict[str, Tensor]], Tensor], parameters: dict[str, Tensor], tangents: dict[str, Tensor]
) -> Tensor:
    """Return J tangents as the derivative of <J^T v, tangents> with respect to v, in which it is linear."""
    leaves = {name: parameter.clone().requires_grad_() for name, parameter in parameters.items()}
    with torch.enable_grad(), plain_attention():
        values = outputs(leaves)
        v = torch.zeros_like(values, requires_grad=True)
        gradients = torch.autograd.grad(
            values, list(leaves.values()), v, create_graph=True, allow_unused=True, materialize_grads=True
        )
        product = torch.stack([(g * t).sum() for g, t in zip(gradients, tangents.values(), strict=True)]).sum()
        (result,) = torch.autograd.grad(product, v)
    return result


def product_gram(survey: Survey, names: Sequence[str], x1: Inputs, x2: Inputs | None, total: Total) -> None:
    """Add the kernel of the named parameters, column by column; under one key, as a product does not separate them."""
    c, full = survey.outputs, survey.network.full
    other = x1 if x2 is None else x2
    for j in range(len(other)):
        start = j if x2 is None else 0
        rows = slice(start, len(x1))
        for o in range(c):
            weights = survey.like.new_zeros(1, c)
            weights[0, o] = 1
            column = forward(survey, x1[rows], backward(survey, names, other[j : j + 1], weights))
            value = column[:, :, None, None] if full else column[:, [o]]
            total.add(names[0], value, (rows, slice(0, c)), (slice(j, j + 1), slice(o, o + 1)))


class TangentOperator(LinearOperator):  # type: ignore[misc, unused-ignore]
    """The tangent kernel of some inputs as a linear operator: a product costs one backward and one forward pass."""

    def __init__(self, *tensors: Tensor, inputs: Inputs, survey: Survey) -> None:
        super().__init__(*tensors, inputs=inputs, survey=survey)
        self.x, self.survey = inputs.like(tensors), survey

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the kernel; the inputs may be integers."""
        return self.survey.like.dtype

    @property
    def device(self) -> torch.device | None:
        """The device of the kernel."""
        return self.survey.like.device

    def _size(self) -> torch.Size:
        n = len(self.x) * (self.survey.outputs if self.survey.network.full else 1)
        return torch.Size([n, n])

    def _matmul(self, rhs: Tensor) -> Tensor:
        with measuring(self.survey.network.module):
            columns = [self._product(column) for column in rhs.detach().reshape(len(rhs), -1).T]
        value = torch.stack(columns, 1).view(rhs.shape)
        check_finite_output(value)
        return value

    def _product(self, vector: Tensor) -> Tensor:
        survey, c = self.survey, self.survey.outputs
        names = survey.names
        if survey.network.full:
            weights = vector.reshape(-1, c)
            return forward(survey, self.x, backward(survey, names, self.x, weights)).flatten()
        result = torch.zeros_like(vector)  # (1/c) sum_o J_o (J_o^T v): a pair of passes for each output
        for o in range(c):
            weights = vector.new_zeros(len(vector), c)
            weights[:, o] = vector
            result += forward(survey, self.x, backward(survey, names, self.x, weights))[:, o]
        return result / c

    def _diagonal(self) -> Tensor:
        diagonal = Diagonal(self.survey, len(self.x))
        with measuring(self.survey.network.module):
            structured_diag(self.survey, self.x, diagonal)
            jacobian_diag(self.survey, self.survey.rest, self.x, diagonal)
        return diagonal.value.flatten()

    def _transpose_nonbatch(self) -> TangentOperator:
        return self


def _chunks(survey: Survey, n: int) -> list[slice]:
    return slices(n, max(1, survey.byte_budget // (4 * max(1, survey.row_bytes))))
