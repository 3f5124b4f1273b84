"""The parameters and attributes that the docstrings of all estimators share."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["document"]

_Class = TypeVar("_Class", bound=type)

_PARAMETERS = """module : torch.nn.Module, optional
        The network. Default None: a ReLU network of three hidden layers.
    input_shape : tuple of int, optional
        The shape of one input of the module, such as ``(3, 32, 32)``, if X is flattened, one input per row. An X of shape
        (n, 3, 32, 32) needs none. Default None.
    kernel : {"ntk", "nngp", "precomputed"} or Kernel
        Which kernel of the module; or your own kernel, instead of a module; or ``"precomputed"``: X is then the Gram
        matrix K(X, X) at fit and K(x, X), shape (n_test, n_train), at predict. Default ``"ntk"``.
    w_std, b_std : float, optional
        The gains of every weight and bias of the module, as in :func:`ntkit.infinite_width`. Unused if ``kernel`` is
        a Kernel or precomputed. Default None: those of a module in the NTK parametrisation, otherwise sqrt(2) and 0.
    ridge : float, sequence of float or "auto"
        r, relative to ``trace(K)/n``, so that the scale of the kernel never changes an answer. Candidates (a sequence, or
        "auto" for half decades from 1e-8 to 10, from 1e-5 in float32) require ``tune="loo"`` or ``tune="auto"``. Default 0.
    stopping_time : float, sequence of float, "auto" or None
        t; None is infinity. Time is that of gradient flow of half the **summed** squared error: with learning rate
        :math:`\\eta`, t is :math:`\\eta` times the steps, so useful times are of the order of 1 / (eigenvalues of K).
        Candidates (a sequence, or "auto" for half decades from 1 to 1e10 over trace(K), and infinity) require
        ``tune="loo"``. Default None.
    tune : {"auto", "loo", "evidence"}, optional
        ``"auto"``, recommended if nothing is known about the data: choose the gains by marginal likelihood on at most 256
        points, each counted once, then the ridge by leave-one-out error on all. ``"loo"``: choose ridge and stopping time
        among their candidates, or just the ridge if neither has candidates, by the leave-one-out error, mean squared over
        points and columns, in closed form (:func:`ntkit.leave_one_out`). ``"evidence"``: choose ridge, w_std and b_std by
        the marginal likelihood of the targets under the Gaussian process with covariance K, starting from those given, or
        from ridge 1e-2 and b_std 0.1 instead of zeros (:func:`ntkit.evidence`); for ``kernel="ntk"`` or ``"nngp"``. Weights
        of points count there as copies; a noise level per target does not enter. The gains of a module in the NTK
        parametrisation are part of it and are not searched. Default None: everything as given.
    dtype : {"float64", "float32"}
        The dtype in which kernel and solution are computed. Default ``"float64"``.
    device : str or torch.device, optional
        The device of the computation. Results are always NumPy arrays. Default None: the CPU.
    solver : {"auto", "cholesky", "cg", "nystrom", "falkon", "eigenpro"} or Method, optional
        How a system of many rows is solved (:func:`ntkit.solve`); X may then be a ``numpy.memmap``, a Zarr or Dask array, or an
        iterator of blocks of rows, and only the centres are kept where the method has them. With ``tune="loo"`` or ``"auto"``
        the ridge is the best of its candidates on a tenth of the rows, held out, after a fit of at most 200,000 of the others;
        probabilities are calibrated on the held-out rows.
        Default None: exactly, with the whole Gram matrix in memory.
    n_centres : int, optional
        Centres of ``"nystrom"`` (which it implies) and ``"falkon"``. Default None: about 10 sqrt(n), at most 4000."""

_ATTRIBUTES = """kernel_ : Kernel
        The kernel in use, or the string ``"precomputed"``.
    X_fit_ : ndarray of shape (n_train, n_features)
        The training inputs; None when precomputed.
    input_shape_ : tuple of int or None
        The shape of one input, given or inferred from X.
    ridge_, stopping_time_ : float
        The values in use; infinity is training to the end.
    tuning_ : LeaveOneOut, Evidence, dict or None
        The result of tuning; for ``tune="auto"`` the leave-one-out errors of the ridges; with ``solver`` the mean squared error
        of each ridge on the held-out rows, a dictionary.
    jitter_ : float
        What was added to the ridge because the Gram matrix is singular.
    solution_status_ : str
        How the linear system was solved, and whether it needed jitter.
    n_features_in_ : int
        The number of columns of X at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, if X had string names for all."""


def document(cls: _Class) -> _Class:
    """Insert the shared parts into the docstring of an estimator, in place of ``{parameters}`` and ``{attributes}``."""
    if cls.__doc__ is not None:  # removed by python -OO
        cls.__doc__ = cls.__doc__.replace("{parameters}", _PARAMETERS).replace("{attributes}", _ATTRIBUTES)
    return cls
