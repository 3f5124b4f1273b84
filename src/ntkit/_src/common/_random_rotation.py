"""Random directions."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["random_rotation"]


def random_rotation(size: int, generator: torch.Generator) -> Tensor:
    """Draw an orthogonal matrix from the Haar measure, shape (size, size), float64, on the generator's device."""
    normal = torch.randn(size, size, generator=generator, dtype=torch.float64, device=generator.device)
    q, r = torch.linalg.qr(normal)
    rotation: Tensor = q * torch.sign(r.diagonal())  # without the signs it would not be the Haar measure
    return rotation
