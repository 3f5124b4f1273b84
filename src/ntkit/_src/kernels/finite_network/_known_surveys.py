"""Surveys that are kept for later calls, as long as nothing that they depend on has changed."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ._network import Inputs
from ._survey import Survey

_PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, type, BuiltinFunctionType)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{hooks}" for hooks in _HOOKS)
_BASE = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules", "training"}


class _Unprovable(Exception):
    """Raised for a value that may change without a trace."""


class KnownSurveys:
    """The surveys of one module, by what they were made of."""

    def __init__(self) -> None:
        self._facts: list[object] = []
        self._alive: list[object] = []
        self._surveys: dict[object, Survey] = {}

    def find(self, module: nn.Module, read: object, x: Inputs, make: Callable[[], Survey]) -> Survey:
        """Return the survey of an earlier call if it still applies, or else a new one."""
        # It applies if the inputs have the same shapes, dtypes and other arguments, and if neither the module's layers, hooks,
        # modes and attributes nor any tensor in it (by torch's version counter, sum and norm) changed. A module with hooks, or
        # with an attribute that could change unseen, such as an object of an unknown class, is surveyed in every call.
        facts = _Facts()
        try:
            facts.add(read)
            facts.add_module(module)
            key = tuple(_Facts().add_inputs(x).found)
        except _Unprovable:
            return make()
        if facts.found != self._facts:
            self._facts, self._alive, self._surveys = facts.found, facts.alive, {}
        if key not in self._surveys:
            self._surveys[key] = make()
        return self._surveys[key]


class _Facts:
    """Facts about values, equal as long as the values are, and the tensors whose ids are among them."""

    def __init__(self) -> None:
        self.found: list[object] = []
        self.alive: list[object] = []  # an id means nothing once its tensor is gone
        self.layers: set[nn.Module] = set()

    def add_module(self, module: nn.Module) -> None:
        if any(getattr(torch_module, hooks) for hooks in _GLOBAL_HOOKS):
            raise _Unprovable
        self.layers = set(module.modules())
        for layer in module.modules():
            if isinstance(layer, torch.jit.ScriptModule) or any(getattr(layer, hooks) for hooks in _HOOKS):
                raise _Unprovable
            self.found += [layer, type(layer), type(layer).forward]
            for name, value in vars(layer).items():
                if name not in _BASE:
                    self.found.append(name)
                    self.add(value)

    def add_inputs(self, x: Inputs) -> _Facts:
        for name, value in (*enumerate(x.args), *x.kwargs.items()):
            if isinstance(value, Tensor):
                self.found += [name, min(len(value), 3), value.shape[1:], value.dtype, value.device]
            else:
                self.found.append(name)
                self.add(value)
        return self

    def add(self, value: Any) -> None:
        if isinstance(value, Tensor):
            if value.is_inference():  # it counts no versions
                raise _Unprovable
            self.alive.append(value)
            self.found += [id(value), value._version, value.data_ptr(), value.requires_grad]
            self.found += [value.shape, value.dtype, value.device]
            if value.is_floating_point():  # writes through .data count no version
                still = value.detach()
                self.found += [float(still.sum()), float(torch.linalg.vector_norm(still))]
        elif isinstance(value, _PLAIN) or (isinstance(value, nn.Module) and value in self.layers):
            self.found += [type(value), value]
        elif isinstance(value, FunctionType) and not value.__closure__:
            self.found.append(value)
            self.add(value.__defaults__)
        elif type(value) in (tuple, list, torch.Size):
            self.found += [type(value), len(value)]
            for one in value:
                self.add(one)
        elif isinstance(value, dict):
            self.found.append(len(value))
            for name, one in value.items():
                self.found.append(name)
                self.add(one)
        else:
            raise _Unprovable
