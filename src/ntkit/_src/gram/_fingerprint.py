"""Fingerprints: equal ones mean the same kernel of the same data, so that a stored Gram matrix may be reused.

Everything that determines a value takes part: the fields of dataclasses, tensors bit by bit, the code of functions with all
that they refer to. What cannot be accounted for is refused; such a kernel needs its own ``fingerprint()``.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import metadata
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, fx, nn

from ntkit._src.kernels import EmpiricalKernel, InfiniteWidthKernel, Kernel
from ntkit.errors import InputError, InputTypeError

_BLOCK_BYTES = 1 << 24
# Code that a version number identifies.
_VERSIONED = {"gpytorch", "linear_operator", "ntkit", "numpy", "scipy", "sklearn", "torch"}
_PLAIN_MODULE = frozenset(nn.Module().__dict__)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# What determines a value of these kinds, apart from the kind itself.
_MADE_OF: dict[type, tuple[str, ...]] = {
    functools.partial: ("func", "args", "keywords"),
    types.MethodType: ("__func__", "__self__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    property: ("fget", "fset", "fdel"),
}


@runtime_checkable
class Fingerprinted(Protocol):
    """A kernel that provides its own fingerprint: equal strings mean equal values for equal inputs."""

    def fingerprint(self) -> str:
        """Return a string that changes whenever the kernel does."""
        ...


def kernel_fingerprint(kernel: Kernel, input_shape: Sequence[int]) -> dict[str, str]:
    """Return the fingerprint of a kernel on inputs of one shape, part by part, so that a difference can be named.

    A kernel of which nothing reliable is known, and that has no ``fingerprint()`` method, is refused.
    """
    if isinstance(kernel, Fingerprinted):
        own = kernel.fingerprint()
        if not isinstance(own, str) or not own:
            raise InputTypeError(
                f"{type(kernel).__name__}.fingerprint() must return a string that is not empty. Got {own!r}."
            )
        return {f"{type(kernel).__qualname__}.fingerprint()": hashlib.sha256(own.encode()).hexdigest()[:16]}
    if isinstance(kernel, InfiniteWidthKernel):
        return _infinite_width(kernel, input_shape)
    if isinstance(kernel, EmpiricalKernel):
        values = {"module": kernel.emp.module, "output": kernel.emp.output, "gains": kernel.emp._gains}
        return {"kernel": f"empirical {kernel.which}"} | {
            name: fingerprint(value, f"the kernel's {name}") for name, value in values.items()
        }
    if is_dataclass(kernel):
        parts = {"kernel": type(kernel).__name__}
        for field in fields(kernel):
            value = getattr(kernel, field.name)
            if isinstance(value, Kernel):
                inner = kernel_fingerprint(value, input_shape)
                parts |= {f"{field.name}: {name}": part for name, part in inner.items()}
            else:
                parts[field.name] = fingerprint(value, field.name)
        return parts | {"code": fingerprint(type(kernel), "the kernel's class")}
    raise InputError(
        f"ntkit cannot tell whether a stored Gram matrix is that of this kernel, a {type(kernel).__name__}. Give its class a "
        "method fingerprint(self) that returns a string, a new one whenever the kernel changes; or compute without out=."
    )


def _infinite_width(kernel: InfiniteWidthKernel, input_shape: Sequence[int]) -> dict[str, str]:
    program = kernel.limit._program(input_shape, kernel.which == "ntk")
    parts = {"kernel": f"infinite-width {kernel.which}"}
    for number, node in enumerate(program.nodes):
        name = f"operation {number} ({node.op.label()} at {node.path!r})"
        parts[name] = fingerprint(node, name)
    for field in fields(program):
        if field.name != "nodes":
            parts[field.name] = fingerprint(getattr(program, field.name), field.name)
    return parts


def data_fingerprint(x: Tensor) -> str:
    """Return the fingerprint of a batch, shape (n, ...): its dtype, shape and every bit, read in blocks of rows."""
    digest = hashlib.sha256(f"{x.dtype} {tuple(x.shape)}".encode())
    rows = max(1, _BLOCK_BYTES // max(1, x[:1].numel() * x.element_size())) if x.ndim else 1
    for block in torch.split(x.detach(), rows) if x.ndim else (x.detach(),):
        digest.update(block.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def fingerprint(value: object, where: str = "the value") -> str:
    """Return the fingerprint of any value that determines a kernel; messages name it as ``where``."""
    return _Walk(where).digest(value)[:16]


class _Walk:
    """One traversal of a value; a value inside itself is only named, so that cycles end."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.inside: list[int] = []
        self.known: dict[int, str] = {}
        self.alive: list[object] = []  # keeps ids from being reused

    def digest(self, value: object) -> str:
        return _hash(self.parts(value))

    def parts(self, value: Any) -> Iterator[bytes]:
        """Yield bytes that determine the value; each kind of value begins with its own name."""
        match value:
            case None | bool() | int() | str() | bytes() | complex() | types.EllipsisType() if not isinstance(
                value, enum.Enum
            ):
                yield f"{type(value).__name__} {value!r}".encode()
            case float():
                yield f"float {value.hex()}".encode()
            case enum.Enum():
                yield f"enum {type(value).__qualname__} {value.name}".encode()
            case torch.dtype() | torch.device() | torch.Size() | slice() | range() | np.dtype():
                yield f"{type(value).__name__} {value!r}".encode()
            case Tensor():
                yield f"tensor {value.requires_grad} {data_fingerprint(value)}".encode()
            case np.ndarray() | np.generic():
                if value.dtype.hasobject:
                    raise self.refusal(value)
                yield f"array {value.dtype} {value.shape}".encode()
                yield np.ascontiguousarray(value).tobytes()
            case _:
                yield from self.compound(value)

    def compound(self, value: Any) -> Iterator[bytes]:
        if id(value) in self.inside:
            yield f"inside itself {len(self.inside) - self.inside.index(id(value))}".encode()
            return
        if id(value) not in self.known:
            self.alive.append(value)
            self.inside.append(id(value))
            self.known[id(value)] = _hash(self.structure(value))
            self.inside.pop()
        yield self.known[id(value)].encode()

    def structure(self, value: Any) -> Iterator[bytes]:
        match value:
            case Mapping():
                yield b"mapping"
                yield from sorted(f"{self.digest(key)}:{self.digest(one)}".encode() for key, one in value.items())
            case set() | frozenset():
                yield b"set"
                yield from sorted(self.digest(one).encode() for one in value)
            case tuple() | list():
                yield type(value).__name__.encode()
                yield from (self.digest(one).encode() for one in value)
            case type():
                yield from self.kind(value)
            case fx.GraphModule():
                yield from self.graph_module(value)
            case nn.Module():
                yield from self.module(value)
            case types.ModuleType():
                yield from self.library(value.__name__, value)
            case types.CodeType():
                yield from self.code(value)
            case types.FunctionType():
                yield from self.function(value)
            case (
                types.BuiltinFunctionType() | np.ufunc() | types.MethodDescriptorType() | types.WrapperDescriptorType()
            ):
                yield from self.library(getattr(value, "__module__", None) or "builtins", value)
                yield getattr(value, "__qualname__", value.__name__).encode()
            case torch.jit.ScriptFunction():
                yield b"script " + str(value.code).encode()
            case _ if is_dataclass(value):
                yield b"dataclass " + self.digest(type(value)).encode()
                yield from self.named((field.name, getattr(value, field.name)) for field in fields(value))
            case _:
                parts = next((names for kind, names in _MADE_OF.items() if isinstance(value, kind)), None)
                if parts is None:
                    raise self.refusal(value)
                yield type(value).__name__.encode()
                yield self.digest(tuple(getattr(value, name) for name in parts)).encode()

    def named(self, values: Iterable[tuple[str, object]]) -> Iterator[bytes]:
        for name, value in values:
            yield name.encode()
            yield self.digest(value).encode()

    def function(self, value: types.FunctionType) -> Iterator[bytes]:
        if _versioned(value.__module__) and "<" not in value.__qualname__:  # neither <locals> nor <lambda>
            yield from self.library(value.__module__, value)
            yield value.__qualname__.encode()
            return
        yield b"function"
        yield from self.code(value.__code__)
        yield self.digest((value.__defaults__, value.__kwdefaults__)).encode()
        for cell in value.__closure__ or ():
            try:
                contents = cell.cell_contents
            except ValueError:  # an unbound name
                contents = "no value"
            yield self.digest(contents).encode()
        names = sorted(_global_names(value.__code__) & value.__globals__.keys())
        yield from self.named((name, value.__globals__[name]) for name in names)

    def code(self, code: types.CodeType) -> Iterator[bytes]:
        # Bytecode depends on the Python version; another version means another fingerprint.
        yield f"code {sys.version_info[:2]} {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}".encode()
        yield code.co_code
        yield self.digest((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode()
        for constant in code.co_consts:
            yield self.digest(constant).encode()

    def kind(self, value: type) -> Iterator[bytes]:
        yield f"class {value.__module__}.{value.__qualname__}".encode()
        for base in value.__mro__:
            if _versioned(base.__module__):
                yield from self.library(base.__module__, base)
                continue
            yield base.__qualname__.encode()
            for name, member in sorted(vars(base).items()):
                if isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                    yield name.encode()
                elif isinstance(member, types.FunctionType) or not (name.startswith("__") or name == "_abc_impl"):
                    yield from self.named([(name, member)])

    def module(self, value: nn.Module) -> Iterator[bytes]:
        yield b"module " + self.digest(type(value)).encode()
        yield str(value.training).encode()
        yield from self.state(value)
        yield from self.named((name, own) for name, own in sorted(vars(value).items()) if name not in _PLAIN_MODULE)

    def graph_module(self, value: fx.GraphModule) -> Iterator[bytes]:
        # The code names what it reads; the class of a GraphModule is recreated each time and says nothing.
        yield b"graph " + value.code.encode()
        yield from self.state(value)
        for node in value.graph.nodes:
            if node.op == "get_attr":
                name = str(node.target)
                yield from self.named([(name, functools.reduce(getattr, name.split("."), value))])
            elif node.op == "call_function":
                yield self.digest(node.target).encode()

    def state(self, value: nn.Module) -> Iterator[bytes]:
        for hooks in _HOOKS:
            yield self.digest(tuple(getattr(value, hooks).values())).encode()
        for values in (value._parameters, value._buffers, value._modules):
            yield from self.named(values.items())

    def library(self, name: str, value: object) -> Iterator[bytes]:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("builtins", "_operator"):
            yield f"python {sys.version_info[:2]} {name}".encode()
        elif _versioned(top):
            yield f"library {name} {_version(top)}".encode()
        else:
            raise self.refusal(value)

    def refusal(self, value: object) -> InputError:
        return InputError(
            f"{self.where} depends on {value!r}, a {type(value).__name__}, whose changes cannot be detected reliably. Give "
            "the kernel's class a method fingerprint(self) that returns a string, a new one whenever the kernel changes; or "
            "compute without out=."
        )


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _versioned(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _VERSIONED | {"builtins", "abc", "typing", "enum"}


@functools.cache
def _version(package: str) -> str:
    names = {"sklearn": "scikit-learn"}
    try:
        return metadata.version(names.get(package, package))
    except metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", ""))


def _global_names(code: types.CodeType) -> set[str]:
    """Return the names of globals that a function reads, including those of functions inside it."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names
