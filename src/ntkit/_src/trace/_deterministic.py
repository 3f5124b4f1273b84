"""Parameters that the user declares to be fixed numbers, not random draws."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ntkit._src.common import shown
from ntkit.errors import InputError, InputTypeError

__all__ = ["check_deterministic", "fixed"]


def check_deterministic(module: nn.Module, paths: Sequence[str]) -> frozenset[str]:
    """Check that paths name submodules or parameters, all of them frozen."""
    if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
        raise InputTypeError(
            f'deterministic must be a sequence of paths. Got {shown(paths)}. Write deterministic=("layer.path",).'
        )
    parameters = dict(module.named_parameters(remove_duplicate=False))
    known = set(dict(module.named_modules())) | set(parameters)
    for path in paths:
        if path not in known:
            raise InputError(f"deterministic names {path!r}, which the module does not have.")
        trained = [name for name, p in parameters.items() if p.requires_grad and fixed(name, frozenset({path}))]
        if trained:
            raise InputError(
                f"deterministic names {path!r}, whose parameters {trained} are trained. Freeze them first: "
                "requires_grad_(False)."
            )
    return frozenset(paths)


def fixed(path: str, deterministic: frozenset[str]) -> bool:
    """Return whether a parameter or submodule is deterministic, or inside a deterministic one."""
    return any(not name or path == name or path.startswith(f"{name}.") for name in deterministic)
