"""The kernels of a finite network with its present parameters: any module that autograd can differentiate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from linear_operator.operators import LinearOperator
from torch import Tensor, nn

from ntkit._src.common import check_choice, check_integer, measuring
from ntkit._src.kernels._kernel import Kernel
from ntkit._src.trace import GainRule
from ntkit.errors import InputError, InputTypeError

from ._cost import costs
from ._jacobian import jacobian_diag, jacobian_gram
from ._known_surveys import KnownSurveys
from ._network import Batch, Inputs, Network, Output, as_inputs, check_finite_output, larger
from ._products import TangentOperator, product_gram
from ._structured import structured_diag, structured_gram
from ._survey import Diagonal, Survey, Total, survey, survey_features

Method = Literal["auto", "structured", "jacobian", "ntk-vp"]
BYTE_BUDGET = 2**29


class EmpiricalKernel(Kernel):
    """One of the two kernels of a finite network: ``emp.ntk`` or ``emp.nngp``."""

    def __init__(self, emp: Empirical, which: Literal["ntk", "nngp"]) -> None:
        self.emp = emp
        self.which = which

    def __call__(self, x1: Batch, x2: Batch | None = None) -> Tensor:
        """Return the kernel matrix: (n1, n2), or (n1 k, n2 k) with ``output="full"``; row i k + o is input i, output o.

        Parameters
        ----------
        x1, x2
            Inputs, shape (n1, ...) and (n2, ...), in the dtype and on the device of the module's parameters, or integers
            if the module takes them; a tuple of positional or a mapping of keyword arguments for a module with several
            inputs. ``x2=None`` means ``x2 = x1``, at half the cost.
        """
        return self.emp._compute(x1, x2, features=self.which == "nngp")[""]

    def diag(self, x: Batch) -> Tensor:
        """Return K(x_i, x_i), shape (n,), or (n k,) with ``output="full"``."""
        inputs = as_inputs(x)
        found = self.emp._survey(inputs, None, features=self.which == "nngp")
        diagonal = Diagonal(found, len(inputs))
        with measuring(self.emp.module):
            if self.which == "nngp" or self.emp.method in ("auto", "structured"):
                structured_diag(found, inputs, diagonal)
                jacobian_diag(found, found.rest, inputs, diagonal)
            else:
                jacobian_diag(found, found.names, inputs, diagonal)
        check_finite_output(diagonal.value)
        return diagonal.value.flatten()

    def __repr__(self) -> str:
        return f"{self.emp!r}.{self.which}"


class Empirical:
    """The kernels of a finite network, as :func:`empirical` returns them.

    Attributes
    ----------
    ntk
        Theta(x, x') = sum over trained parameters of df(x)/dw df(x')/dw, a :class:`Kernel`.
    nngp
        The covariance of the outputs over draws of the last layer alone, a :class:`Kernel`.
    """

    def __init__(
        self,
        module: nn.Module,
        output: Output,
        method: Method,
        byte_budget: int,
        gains: GainRule | None = None,
        read: Callable[[Any], Tensor] | None = None,
    ) -> None:
        """Take the arguments of :func:`empirical`, and the rule by which a plain module's weights were drawn, if any."""
        self._gains, self._read = gains, read
        self._known = (KnownSurveys(), KnownSurveys())  # of all trained parameters, and of the last layer
        self.module = module
        self.output = output
        self.method = method
        self.byte_budget = byte_budget

    @property
    def ntk(self) -> EmpiricalKernel:
        """The tangent kernel of the trained parameters."""
        return EmpiricalKernel(self, "ntk")

    @property
    def nngp(self) -> EmpiricalKernel:
        r"""The kernel of the last hidden features.

        :math:`K(x, x') = \frac{w^2}{q} \phi(x) \cdot \phi(x') + b^2`, where :math:`\phi` is the input of the last ``Linear``
        (or ``Conv``) layer, q its number of entries, and w, b are the gains of the layer's NTK parametrisation
        (:func:`ntkit.parametrize_ntk`), or 1 and 0 without one. It is the covariance of the outputs over fresh draws of
        that layer, and tends to the NNGP kernel as the width grows. It accounts for whatever follows the layer (pooling,
        a sum of logits).
        """
        return EmpiricalKernel(self, "nngp")

    def ntk_by_layer(self, x1: Batch, x2: Batch | None = None) -> dict[str, Tensor]:
        """Return each layer's contribution to the NTK by the layer's path, and that of the module's own parameters by name.

        The matrices sum to ``ntk(x1, x2)``.

        Examples
        --------
        >>> import torch, ntkit
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
        >>> parts = ntkit.empirical(net).ntk_by_layer(torch.eye(2))
        >>> list(parts), parts["0"].shape
        (['0', '2'], torch.Size([2, 2]))
        """
        return self._compute(x1, x2, by_layer=True)

    def ntk_operator(self, x: Batch) -> LinearOperator:
        """Return the NTK of some inputs as a linear operator, shape (n, n) or (n k, n k), without forming the matrix.

        A product with a vector takes one backward and one forward pass (J J^T v), for each output if the kernel
        averages over outputs.

        Examples
        --------
        >>> import torch, ntkit
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1)).double()
        >>> x, v = torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
        >>> emp = ntkit.empirical(net)
        >>> torch.allclose(emp.ntk_operator(x) @ v, emp.ntk(x) @ v)
        True
        """
        inputs = as_inputs(x)
        return TangentOperator(*inputs.tensors.values(), inputs=inputs, survey=self._survey(inputs, None))

    def method_for(self, x1: Batch, x2: Batch | None = None) -> str:
        """Return the method that computes the NTK of some inputs; for ``"auto"``, the one with the fewest multiplications."""
        first, second = as_inputs(x1), None if x2 is None else as_inputs(x2)
        return self._method(self._survey(first, second), first, second)

    def _method(self, found: Survey, x1: Inputs, x2: Inputs | None) -> str:
        if self.method != "auto":
            return self.method
        estimates = costs(found, len(x1), None if x2 is None else len(x2))
        return min(estimates, key=lambda method: estimates[method])

    def _survey(self, x1: Inputs, x2: Inputs | None, features: bool = False) -> Survey:
        """Check the inputs and survey the module, or only its last layer; an earlier survey is used while it applies."""
        network = Network(self.module, self.output, self._read)
        network.check(x1, x2, trained=not features)
        x = larger(x1, x2)

        def make() -> Survey:
            with measuring(self.module):
                if features:
                    return survey_features(network, x, self.byte_budget, self._gains)
                return survey(network, x, self.byte_budget)

        return self._known[features].find(self.module, self._read, x, make)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_known": (KnownSurveys(), KnownSurveys())}

    def _compute(
        self, batch1: Batch, batch2: Batch | None, by_layer: bool = False, features: bool = False
    ) -> dict[str, Tensor]:
        """Return the NTK, or that of the last layer's ``features``: under the key "", or the paths of the layers."""
        x1, x2 = as_inputs(batch1), None if batch2 is None else as_inputs(batch2)
        found = self._survey(x1, x2, features)
        method = "structured" if features else self._method(found, x1, x2)
        names = found.names if features else found.network.trained
        keys = {name: _layer_path(name) if by_layer else "" for name in names}
        total = Total(found, len(x1), len(x1 if x2 is None else x2), keys)
        with measuring(self.module):
            if method == "structured":
                structured_gram(found, x1, x2, total)
                jacobian_gram(found, found.rest, x1, x2, total)
            elif method == "jacobian":
                jacobian_gram(found, found.names, x1, x2, total)
            else:
                for key in {keys[name]: None for name in found.names}:
                    product_gram(found, [name for name in found.names if keys[name] == key], x1, x2, total)
        matrices = total.finish(x2 is None)
        for matrix in matrices.values():
            check_finite_output(matrix)
        return matrices

    def __repr__(self) -> str:
        return f"empirical({type(self.module).__name__}, output={self.output!r})"


def empirical(
    module: nn.Module,
    output: Output | Callable[[Any], Tensor] = "trace",
    method: Method = "auto",
    *,
    read: Callable[[Any], Tensor] | None = None,
    byte_budget: int = BYTE_BUDGET,
) -> Empirical:
    r"""Return the kernels of a finite module, exact for its present parameters.

    The tangent kernel is :math:`\Theta(x, x') = \sum_w \frac{\partial f(x)}{\partial w} \frac{\partial f(x')}{\partial w}^T`
    over every parameter that requires gradients, a k x k block for k outputs. The parametrisation matters: in the NTK
    parametrisation (:func:`ntkit.parametrize_ntk`) the kernel tends to that of :func:`ntkit.infinite_width`; in PyTorch's own
    it grows with the width.

    Parameters
    ----------
    module
        Any module that maps a batch (n, ...) to a tensor (n, ...), row by row, and that autograd can differentiate: batch
        norm in evaluation mode, max pooling, attention, embeddings, tied weights. It may take several arguments: the
        kernels then take a tuple of positional arguments or a mapping of keyword arguments, whose tensors all have n rows,
        such as ``{"input_ids": ids, "attention_mask": mask}``. It is not copied: the kernels follow its training. They leave
        its modes, buffers and gradients and all global generators as they found them. Its parameters are float32 or float64.
    output
        ``"trace"``, the default: the mean over the k outputs of each output's kernel. ``"sum"``: the kernel of the sum of the
        outputs. ``"full"``: all outputs, a matrix of (n k) x (n k), which functions that fit a kernel to data do not take. An
        integer: one output. Outputs with several axes are flattened. A function: short for ``read=function`` with ``"trace"``.
    method
        ``"structured"``: a ``Linear`` or ``Conv`` layer's kernel is the product of the Gram matrix of its inputs and that
        of the gradients backpropagated to it (Beaglehole et al. 2024, Proposition 3), summed over pairs of positions; other
        parameters are handled as in ``"jacobian"``, which contracts the derivatives of each row in blocks. ``"ntk-vp"``:
        column by column, backward and forward through the network. ``"auto"``: the one with the fewest multiplications.
        All compute the same matrix. Default ``"auto"``.
    read
        Extracts the output tensor (n, ...) from what the module returns, if it returns a tuple, a dict or an object:
        ``lambda out: out.logits``. Default None: the module returns that tensor.
    byte_budget
        Bytes that a method may hold at a time, not counting the result, one row of one output's derivative, and torch's own
        needs. Default 512 MiB.

    Returns
    -------
    Empirical
        With the kernels ``ntk`` and ``nngp``, ``ntk_by_layer`` and ``ntk_operator``. The kernels raise an
        :class:`~ntkit.errors.InputError` for modules in training mode with dropout or batch statistics, without trained
        parameters, or whose output is not one differentiable tensor; an :class:`~ntkit.errors.InputTypeError` for modules
        that compute in half precision.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 3))
    >>> emp = ntkit.empirical(net.eval())
    >>> x = torch.randn(5, 1, 8, 8)
    >>> emp.ntk(x).shape, emp.nngp(x[:2], x).shape, ntkit.empirical(net, output="full").ntk(x).shape
    (torch.Size([5, 5]), torch.Size([2, 5]), torch.Size([15, 15]))

    A module of two inputs that returns a tuple:

    >>> net = nn.GRU(3, 4, batch_first=True)
    >>> sequences, start = torch.randn(5, 6, 3), torch.zeros(5, 1, 4)
    >>> class Start(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.rnn = net
    ...     def forward(self, x, start):
    ...         return self.rnn(x, start.transpose(0, 1).contiguous())
    >>> ntkit.empirical(Start(), output=lambda out: out[0]).ntk((sequences, start)).shape
    torch.Size([5, 5])

    See Also
    --------
    ntkit.infinite_width : the kernels in the limit of infinite width.
    ntkit.monte_carlo : the mean of these kernels over random networks.
    """
    if callable(output):
        if read is not None:
            raise InputError(
                "give the function once: output=function, or read=function with output as a name or index."
            )
        read, output = output, "trace"
    if read is not None and not callable(read):
        raise InputTypeError(f"read must be a function of what the module returns. Got {type(read).__name__}.")
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module. Got {type(module).__name__}.")
    if isinstance(output, bool) or not isinstance(output, int):
        instead = ", the index of one output, or a function of what the module returns"
        check_choice("output", output, ("trace", "sum", "full"), instead)
    check_choice("method", method, get_args(Method))
    return Empirical(module, output, method, check_integer("byte_budget", byte_budget, 1), read=read)


def _layer_path(name: str) -> str:
    owner = name.split(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
    return owner or name
