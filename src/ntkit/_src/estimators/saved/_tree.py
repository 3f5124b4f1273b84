"""Fitted objects and networks as trees of plain values; only the classes and functions listed here are restored."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from torch import Tensor, nn

from ntkit._src.common import restored_generator
from ntkit._src.features.rfm import DifferentiableKernel, DistanceKernel, MetricPart, MetricSum
from ntkit._src.kernels import InfiniteWidthKernel, infinite_width
from ntkit.errors import InputError

from .._ntk_estimators import NTKClassifier, NTKRegressor
from .._tabular import _as_floats, _as_strings, category_columns, number_columns
from .._training_data import Weighting, kernel_of
from .._uncertainty import Calibration

_PARTS = (ColumnTransformer, FunctionTransformer, MissingIndicator, OneHotEncoder, SimpleImputer, StandardScaler)
_KERNELS = (MetricSum, MetricPart, DistanceKernel, DifferentiableKernel)
_CLASSES: dict[str, Any] = {
    kind.__name__: kind for kind in (NTKClassifier, NTKRegressor, Pipeline, Weighting, Calibration, *_KERNELS, *_PARTS)
}
_FUNCTIONS = {one.__name__: one for one in (_as_floats, _as_strings, category_columns, number_columns)}
_TYPES: dict[str, type] = {"float64": np.float64, "float32": np.float32, "float": float, "object": object}
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
OF_THE_KERNEL: Any = "of the kernel"
"""What an estimator's ``module`` is decoded as: the network of its kernel."""

# What a loaded model does without, or computes again when asked for it: the factor is as large as the Gram matrix.
_LEFT_OUT = ("tuning_", "_factor")


class Encoder:
    """Turns a fitted object into a tree of JSON values; arrays are collected in ``arrays``.

    Lists and plain values are stored as such; anything else becomes an object whose first key says what it is. What no file
    can hold, such as the user's own kernels, functions and classes, raises an :class:`InputError`. A network is described only
    if the kernel of the network built from the description has the same values at ``rows``, shape (m, ...).
    """

    def __init__(self, rows: Tensor | None) -> None:
        self._rows = rows
        self.arrays: dict[str, NDArray[Any]] = {}

    def __call__(self, value: object) -> Any:
        """Encode one value."""
        match value:
            case None | bool() | int():
                return value
            case str() | torch.device():
                return str(value)  # a plain string, even if it is of a subclass
            case float():
                return float(value) if math.isfinite(value) else {"float": str(value)}
            case list():
                return [self(one) for one in value]
            case tuple():
                return {"tuple": [self(one) for one in value]}
            case dict():
                return {"dict": [[self(key), self(one)] for key, one in value.items()]}
            case slice():
                return {"slice": [self(value.start), self(value.stop), self(value.step)]}
            case np.ndarray() | np.generic():
                return self._array(value)
            case Tensor():
                return {"tensor": self._array(value.detach().cpu().numpy())}
            case nn.Module():
                return {"network": OF_THE_KERNEL}
            case InfiniteWidthKernel():
                return self._kernel(value)
            case np.dtype():
                return {"dtype": self._array(np.empty(0, value))}
            case torch.dtype():
                return {"torch dtype": str(value).removeprefix("torch.")}
        for key, table in (("type", _TYPES), ("function", _FUNCTIONS)):
            for name, known in table.items():
                if value is known:
                    return {key: name}
        kind = type(value)
        if _CLASSES.get(kind.__name__) is kind:
            state = {name: self(one) for name, one in vars(value).items() if name not in _LEFT_OUT}
            return {"class": kind.__name__, "state": state}
        raise InputError(
            f"a model file holds an NTKClassifier or NTKRegressor with a network's kernel, alone or in tabular_pipeline(). Got "
            f"a {kind.__module__}.{kind.__name__}."
        )

    def _array(self, value: NDArray[Any] | np.generic) -> dict[str, Any]:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind == "T":
            return {"objects": [self(one) for one in array.ravel().tolist()], "shape": list(array.shape)}
        name = f"a{len(self.arrays)}"
        # Memory order does not change the numbers; a fixed order makes equal models equal files.
        self.arrays[name] = np.array(array, order="C", subok=False)
        return {"scalar" if isinstance(value, np.generic) else "array": name}

    def _kernel(self, kernel: InfiniteWidthKernel) -> dict[str, Any]:
        module, gains = kernel.limit.module, kernel.limit.gains
        if gains.overrides:
            raise InputError("a model file cannot hold overrides of individual gains. Fit without them.")
        numbers = [None if one is None else float(one) for one in (gains.w_std, gains.b_std)]
        entry = {"kernel": kernel.which, "gains": numbers, "init": gains.init, "name": type(module).__name__}
        layers = describe_module(module)
        return {**entry, "layers": layers if layers is not None and self._same(entry, layers, kernel) else None}

    def _same(self, entry: dict[str, Any], layers: list[Any], kernel: InfiniteWidthKernel) -> bool:
        if self._rows is None:
            return False
        try:
            again = _kernel({**entry, "layers": layers}, None)
            with torch.no_grad():
                return torch.equal(again(self._rows), kernel(self._rows))
        except InputError:
            return False


class Decoder:
    """Turns a tree back into the object, with the network given if the file could not describe it.

    What :class:`Encoder` did not make raises a ValueError, KeyError or TypeError; a missing network an InputError.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], module: nn.Module | None) -> None:
        self._given = module
        self._simple: dict[str, Callable[[Any], Any]] = {
            "array": lambda name: arrays[name].copy(),
            "scalar": lambda name: arrays[name][()],
            "tensor": lambda tree: torch.from_numpy(self(tree)),
            "tuple": lambda trees: tuple(map(self, trees)),
            "dict": lambda items: {self(key): self(one) for key, one in items},
            "slice": lambda trees: slice(*map(self, trees)),
            "float": float,
            "network": lambda _: OF_THE_KERNEL,
            "dtype": lambda tree: self(tree).dtype,
            "torch dtype": _DTYPES.__getitem__,
            "type": _TYPES.__getitem__,
            "function": _FUNCTIONS.__getitem__,
        }

    def __call__(self, tree: Any) -> Any:
        """Decode one value."""
        match tree:
            case list():
                return [self(one) for one in tree]
            case {"class": name, "state": state}:
                kind = _CLASSES[name]
                made = kind.__new__(kind)
                made.__dict__.update({key: self(one) for key, one in state.items()})
                return made
            case {"objects": values, "shape": shape}:
                array = np.empty(len(values), dtype=object)
                array[:] = [self(one) for one in values]
                return array.reshape(shape)
            case {"kernel": _}:
                return _kernel(tree, self._given)
            case dict():
                ((key, value),) = tree.items()
                return self._simple[key](value)
        return tree


def _kernel(entry: Mapping[str, Any], given: nn.Module | None) -> InfiniteWidthKernel:
    if given is None and entry["layers"] is None:
        raise InputError(
            f"the model's network is a {entry['name']}, which its file does not hold. Pass the network: load_model(path, "
            "module=...), on the command line --module package.module:attribute."
        )
    module = build_described(entry["layers"], "the model's network") if given is None else given
    w_std, b_std = entry["gains"]
    return kernel_of(infinite_width(module, w_std=w_std, b_std=b_std, init=entry["init"]), entry["kernel"])


_NOT_ARGUMENTS = ("self", "args", "kwargs", "device", "dtype", "inplace")


def build_described(layers: Sequence[Mapping[str, Any]], where: str = "the description") -> nn.Sequential:
    """Build a network from the description of its layers, in evaluation mode: a description has kernels, without dropout.

    A layer is a mapping with ``layer``, the name of a class of ``torch.nn``, and its arguments by name. ``frozen = true`` freezes
    its parameters; ``Sequential`` takes a nested list ``layers``. Messages call the description ``where``.

    Examples
    --------
    >>> net = build_described([
    ...     {"layer": "Linear", "in_features": 5, "out_features": 64}, {"layer": "ReLU"},
    ...     {"layer": "Linear", "in_features": 64, "out_features": 1, "frozen": True},
    ... ])
    >>> net[2]
    Linear(in_features=64, out_features=1, bias=True)
    >>> describe_module(net)[1]
    {'layer': 'ReLU'}
    """
    if not isinstance(layers, Sequence) or isinstance(layers, str) or not layers:
        raise InputError(f"{where} must list at least one layer. Got {layers!r:.60}.")
    # torch draws initial weights from its global generator; building a network must not advance the user's.
    with restored_generator():
        made = [_layer(one, f"layer {number} of {where}") for number, one in enumerate(layers)]
    return nn.Sequential(*made).eval()


def describe_module(module: nn.Module) -> list[dict[str, Any]] | None:
    """Describe a ``Sequential`` of layers of ``torch.nn`` as :func:`build_described` reads it; None if that is not possible."""
    if type(module) is not nn.Sequential:
        return None
    found = [_described(layer) for layer in module]
    return None if None in found else [entry for entry in found if entry is not None]


def _layer(entry: Mapping[str, Any], where: str) -> nn.Module:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("layer"), str):
        raise InputError(f'{where} must have a name, as in layer = "Linear". Got {entry!r:.60}.')
    arguments = {key: _tuples(value) for key, value in entry.items() if key not in ("layer", "frozen")}
    name = entry["layer"]
    kind = getattr(nn, name, None)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__.startswith("torch.nn.modules")):
        raise InputError(f"{where} must be a layer of torch.nn. Got {name!r}.")
    try:
        made = build_described(arguments.pop("layers", ()), where) if kind is nn.Sequential else kind(**arguments)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        if isinstance(error, InputError):
            raise
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{where}, {name}, does not take these arguments: {text}") from error
    return made.requires_grad_(False) if entry.get("frozen", False) else made


def _described(layer: nn.Module) -> dict[str, Any] | None:
    kind = type(layer)
    if kind is nn.Sequential:
        inner = describe_module(layer)
        return None if inner is None else {"layer": "Sequential", "layers": inner}
    if getattr(nn, kind.__name__, None) is not kind:
        return None
    entry: dict[str, Any] = {"layer": kind.__name__}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name in _NOT_ARGUMENTS:
            continue
        value = getattr(layer, name, parameter.default)
        if name == "bias":
            value = value is not None and value is not False
        if not _plain(value):
            return None
        if value != parameter.default:
            entry[name] = list(value) if isinstance(value, tuple) else value
    trained = {parameter.requires_grad for parameter in layer.parameters()}
    if len(trained) > 1 or any(True for _ in layer.children()):
        return None
    if trained == {False}:
        entry["frozen"] = True
    return entry


def _plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_plain(one) for one in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _tuples(value: Any) -> Any:
    """Return arrays of JSON and TOML as the tuples that torch's layers take."""
    if isinstance(value, list) and not any(isinstance(one, Mapping) for one in value):
        return tuple(_tuples(one) for one in value)
    return value
