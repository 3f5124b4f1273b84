"""Any ntkit kernel as a GPyTorch kernel; GPyTorch is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ntkit._src.common import check_input_shape
from ntkit.errors import MissingDependencyError

from ._kernel import Kernel, check_kernel

if TYPE_CHECKING:
    from gpytorch.constraints import Interval
    from gpytorch.priors import Prior

    from ._gpytorch_kernel import GPyTorchKernel


def as_gpytorch_kernel(
    kernel: Kernel,
    input_shape: Sequence[int] | None = None,
    *,
    w_std_prior: Prior | None = None,
    w_std_constraint: Interval | None = None,
    b_std_prior: Prior | None = None,
    b_std_constraint: Interval | None = None,
) -> GPyTorchKernel:
    """Wrap an ntkit kernel for GPyTorch (``pip install ntkit[gp]``).

    The result is a ``gpytorch.kernels.Kernel`` for ``ExactGP`` models, alone or inside ``ScaleKernel`` and sums. With the NNGP
    kernel the posterior is that of the infinitely wide Bayesian network; with the NTK its mean is the infinitely wide
    network trained by gradient descent [1]_ [2]_. Batch dimensions of the inputs are processed one batch at a time.

    The gains of ``ntkit.infinite_width`` are parameters, ``raw_w_std`` and ``raw_b_std``, that the marginal likelihood trains;
    ``kernel.w_std`` and ``kernel.b_std`` read and set them. A gain of zero cannot be trained and stays zero; kernels of
    other kinds, and of modules in the NTK parametrisation, have no parameters. ``kernel.requires_grad_(False)`` freezes the
    gains.

    Parameters
    ----------
    kernel : Kernel
        The kernel, such as ``ntkit.infinite_width(module, b_std=0.1).nngp``; training starts from its gains.
    input_shape : tuple of int, optional
        The shape of one input: GPyTorch flattens images, ``input_shape=(3, 32, 32)`` unflattens them. Default None.
    w_std_prior, b_std_prior : gpytorch.priors.Prior, optional
        Priors on the gains, included in the marginal likelihood. Default None.
    w_std_constraint, b_std_constraint : gpytorch.constraints.Interval, optional
        Constraints on the gains. Default ``Positive()``.

    Returns
    -------
    gpytorch.kernels.Kernel
        The wrapped kernel. For float64 data convert it with the rest of the model: ``model.double()``.

    See Also
    --------
    as_sklearn_kernel : the same for scikit-learn.
    ntkit.evidence : chooses gains, ridge and depth without either library.

    References
    ----------
    .. [1] Jacot, Gabriel, Hongler, "Neural Tangent Kernel: Convergence and Generalization in Neural Networks", 2018.
    .. [2] Arora, Du, Hu, Li, Salakhutdinov, Wang, "On Exact Computation with an Infinitely Wide Neural Net", 2019.

    Examples
    --------
    >>> import ntkit, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
    >>> limit = ntkit.infinite_width(net, b_std=0.1)
    >>> kernel = ntkit.as_gpytorch_kernel(limit.nngp)
    >>> x = torch.randn(5, 2)
    >>> torch.allclose(kernel(x).to_dense(), limit.nngp(x), rtol=1e-4)
    True
    >>> [name for name, _ in kernel.named_parameters()]
    ['raw_w_std', 'raw_b_std']
    """
    check_kernel(kernel)
    try:
        from ._gpytorch_kernel import GPyTorchKernel
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("gpytorch"):
            raise
        raise MissingDependencyError("as_gpytorch_kernel needs GPyTorch: pip install ntkit[gp]") from error
    return GPyTorchKernel(
        kernel,
        check_input_shape(input_shape),
        {"w_std": w_std_prior, "b_std": b_std_prior},
        {"w_std": w_std_constraint, "b_std": b_std_constraint},
    )
