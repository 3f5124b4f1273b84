"""How many arithmetic operations a computation takes."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

__all__ = ["Operations"]


class Operations(TorchDispatchMode):
    """Counts the operations of matrix products and convolutions inside its block, by torch's own formulas.

    torch's ``FlopCounterMode`` counts as much, module by module, with hooks that fail if a program asks
    ``torch.autograd.grad`` for derivatives in parameters.

    Attributes
    ----------
    total
        Operations so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count it, or those it consists of."""
        kwargs = kwargs or {}
        count = flop_registry.get(func._overloadpacket)
        if count is None:
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        found = func(*args, **kwargs)
        if count is not None:
            self.total += count(*args, **kwargs, out_val=found)
        return found
