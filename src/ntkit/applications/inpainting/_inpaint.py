"""Missing pixels of an image by regression with the kernel between pixels of a convolutional network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit.common import Progress, check_gram_memory, check_ridge, check_tensor
from ntkit.errors import InputError, InputTypeError, SingularKernelError
from ntkit.kernels import infinite_width
from ntkit.solvers import solve

from ._encoder_decoder import Upsampling, encoder_decoder
from ._kernel import InpaintingKernel
from ._sparse_system import solve_sparse

__all__ = ["Inpainting", "inpaint"]

_DENSE_PIXELS = 1500


@dataclass(frozen=True, eq=False)
class Inpainting:
    """An image without gaps.

    Attributes
    ----------
    image
        Shaped like the input; known pixels are unchanged.
    status
        One sentence: the solver, its residual, whether the image was padded.
    iterations
        Iterations of conjugate gradients; 0 for a factorisation.
    residual
        The largest over channels of ||K a - y|| / ||y|| over the known pixels.
    """

    image: Tensor
    status: str
    iterations: int
    residual: float


def inpaint(
    image: Tensor,
    mask: Tensor,
    module: nn.Module | InpaintingKernel | None = None,
    prior: Tensor | Literal["stationary", "meshgrid"] = "stationary",
    solver: Literal["auto", "cg", "dense"] = "auto",
    *,
    levels: int = 3,
    upsampling: Upsampling = "nearest",
    ridge: float = 1e-4,
    clip: tuple[float, float] | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 5000,
    progress: Progress | None = None,
) -> Inpainting:
    """Fill the gaps of an image by kernel regression over its pixels (Radhakrishnan et al. 2021).

    An infinitely wide network that maps noise to an image and is trained only on the known pixels predicts the others by
    regression with its position-resolved tangent kernel (Golikov et al. 2022, section 6.1.3). The channels of the image are
    right-hand sides of one system. With the stationary prior the kernel is a constant plus a sparse matrix
    (:class:`InpaintingKernel`), and images of any size are solved by conjugate gradients.

    Parameters
    ----------
    image : Tensor of shape (H, W) or (channels, H, W)
        The image, float32 or float64. Its values at missing pixels are never read.
    mask : Tensor of shape (H, W)
        Boolean, True where a pixel is missing.
    module : nn.Module or InpaintingKernel, optional
        The network, or its kernel, which then serves many images. Default None: :func:`encoder_decoder`.
    prior : {"stationary", "meshgrid"} or Tensor of shape (c, H, W)
        The input of the network. ``"stationary"``: noise. ``"meshgrid"``: the two coordinates between -1 and 1. An array:
        itself. The last two have no structure: the kernel between all pixels is held in memory, which is checked first. Default
        ``"stationary"``.
    solver : {"auto", "cg", "dense"}
        ``"cg"``: conjugate gradients and Sherman-Morrison, for the stationary prior. ``"dense"``: a Cholesky factorisation.
        ``"auto"``: dense up to 1,500 known pixels or if there is no structure. Default ``"auto"``.
    levels, upsampling
        See :class:`InpaintingKernel`. Defaults 3 and ``"nearest"``.
    ridge : float
        Relative to the mean of the kernel's diagonal. Default 1e-4: without one, the kernel of nearly all pixels of an image is
        singular to rounding.
    clip : pair of float, optional
        Range to which imputed values are clipped. Default None: no clipping.
    tolerance, max_iterations
        Tolerance of the relative residual, and the number of iterations after which conjugate gradients give up with an error.
        Defaults 1e-6 and 5000.
    progress : callable, optional
        Called with the number of iterations done and the maximum.

    Returns
    -------
    Inpainting

    Raises
    ------
    InputError
        For masks of another shape, masks without a missing or without a known pixel, and values that are not finite.
    SingularKernelError
        If conjugate gradients do not converge; then no image is returned.
    MemoryLimitError
        If a dense kernel does not fit into memory.

    See Also
    --------
    ntkit.applications.NTKImputer : the same for matrices whose columns have no order.

    Examples
    --------
    >>> import torch
    >>> from ntkit.applications import inpaint
    >>> rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    >>> image = torch.sin(rows / 5) + torch.cos(columns / 7)
    >>> mask = torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) < 0.5
    >>> filled = inpaint(image, mask, levels=2)
    >>> bool((filled.image - image)[mask].std() < 0.2 * image.std())
    True
    """
    _check_image(image, mask)
    ridge = check_ridge(ridge)
    if solver not in ("auto", "cg", "dense"):
        raise InputError(f'solver must be "auto", "cg" or "dense". Got {solver!r}.')
    if clip is not None and (len(clip) != 2 or not clip[0] < clip[1]):
        raise InputError(f"clip must be two numbers, the smaller first. Got {clip!r}.")
    channels = image[None] if image.ndim == 2 else image
    known, missing = (np.flatnonzero(part.cpu().numpy().ravel()) for part in (~mask, mask))
    y = channels.flatten(1)[:, torch.from_numpy(known)].T.double().cpu().numpy()
    if isinstance(prior, str) and prior == "stationary":
        kernel = module if isinstance(module, InpaintingKernel) else InpaintingKernel(module, levels, upsampling)
        dense = solver == "dense" or (solver == "auto" and len(known) <= _DENSE_PIXELS)
        values, status, iterations, residual = _stationary(
            kernel, (mask.shape[0], mask.shape[1]), known, missing, y, ridge, dense, tolerance, max_iterations, progress
        )
    else:
        if solver == "cg" or isinstance(module, InpaintingKernel):
            raise InputError(
                "a prior of data has a kernel without structure: leave solver out, and pass a network as module."
            )
        values, status, residual = _from_data(module, prior, mask, known, missing, y, ridge, levels, upsampling)
        iterations = 0
    if clip is not None:
        values = values.clip(*clip)
    flat = channels.flatten(1).clone()
    flat[:, torch.from_numpy(missing).to(flat.device)] = torch.from_numpy(values.T).to(flat)
    return Inpainting(flat.reshape(image.shape), status, iterations, residual)


def _stationary(
    kernel: InpaintingKernel,
    shape: tuple[int, int],
    known: NDArray[np.int64],
    missing: NDArray[np.int64],
    y: NDArray[np.float64],
    ridge: float,
    dense: bool,
    tolerance: float,
    max_iterations: int,
    progress: Progress | None,
) -> tuple[NDArray[np.float64], str, int, float]:
    height, width = shape
    if min(shape) < kernel.period:
        fits = min(shape).bit_length() - 1
        raise InputError(
            f"an image of {height} x {width} pixels cannot be halved {kernel.levels} times. Write levels={fits} or less."
        )
    least = 2 * kernel.reach
    tall, wide = (max(least + -least % kernel.period, side + -side % kernel.period) for side in shape)
    note = "" if (tall, wide) == shape else f" The image was padded to {tall} x {wide} and cut back."
    known, missing = (index // width * wide + index % width for index in (known, missing))
    system = kernel.sparse(tall, wide, known, known)
    scale = float(system.diagonal().mean()) + kernel.constant
    cross = kernel.sparse(tall, wide, missing, known)
    if dense:
        check_gram_memory(len(known), len(known), torch.float64, matrices=3, what="the kernel of the known pixels")
        solution = solve(torch.from_numpy(system.toarray() + kernel.constant), torch.from_numpy(y), ridge=ridge)
        weights, residual, iterations = solution.value.numpy(), solution.stats["residual"], 0
        status = f"{solution.status}{note}"
    else:
        found = solve_sparse(system, kernel.constant, ridge * scale, y, tolerance, max_iterations, progress)
        if not found.converged:
            raise SingularKernelError(
                f"conjugate gradients stopped after {found.iterations} iterations with a relative residual of "
                f"{found.residual:.1e}, above {tolerance:.1e}. Raise max_iterations or tolerance, or pass a ridge such as 1e-4."
            )
        weights, residual, iterations = found.value, found.residual, found.iterations
        status = f"Solved by {iterations} conjugate gradient iterations; relative residual {residual:.1e}.{note}"
    return cross @ weights + kernel.constant * weights.sum(0), status, iterations, residual


def _from_data(
    module: nn.Module | None,
    prior: Tensor | str,
    mask: Tensor,
    known: NDArray[np.int64],
    missing: NDArray[np.int64],
    y: NDArray[np.float64],
    ridge: float,
    levels: int,
    upsampling: Upsampling,
) -> tuple[NDArray[np.float64], str, float]:
    height, width = mask.shape
    if isinstance(prior, str):
        if prior != "meshgrid":
            raise InputError(f'prior must be "stationary", "meshgrid" or an array of shape (c, H, W). Got {prior!r}.')
        axes = [torch.linspace(-1, 1, side, dtype=torch.float64) for side in (height, width)]
        given = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    else:
        check_tensor("prior", prior)
        if prior.ndim != 3 or tuple(prior.shape[1:]) != (height, width):
            raise InputError(f"prior must have the shape (c, {height}, {width}). Got {tuple(prior.shape)}.")
        given = prior.detach().double().cpu()
    if module is None:
        if height % 2**levels or width % 2**levels:
            raise InputError(
                f"with a prior of data the sides must be multiples of {2**levels} for levels={levels}. Got {height} x {width}: "
                "pad image, mask (True) and prior, or take fewer levels."
            )
        module = encoder_decoder(levels, upsampling, len(given))
    pixels = height * width
    check_gram_memory(pixels, pixels, torch.float64, matrices=3, what="the kernel between all pixels")
    kernel = infinite_width(module).ntk.positions(given[None])[0, 0].reshape(pixels, pixels)
    first, second = torch.from_numpy(known), torch.from_numpy(missing)
    solution = solve(kernel[first][:, first].contiguous(), torch.from_numpy(y), ridge=ridge)
    return (kernel[second][:, first] @ solution.value).numpy(), str(solution.status), solution.stats["residual"]


def _check_image(image: Tensor, mask: Tensor) -> None:
    check_tensor("image", image)
    check_tensor("mask", mask)
    if image.dtype not in (torch.float32, torch.float64):
        raise InputTypeError(f"image must be float32 or float64. Got {image.dtype}: write image.double() / 255.")
    if image.ndim not in (2, 3) or image.numel() == 0:
        raise InputError(f"image must have the shape (H, W) or (channels, H, W). Got {tuple(image.shape)}.")
    if mask.dtype != torch.bool:
        raise InputTypeError(
            f"mask must be boolean, True where a pixel is missing. Got {mask.dtype}: write mask.bool()."
        )
    if mask.shape != image.shape[-2:]:
        raise InputError(f"mask must have the shape {tuple(image.shape[-2:])} of the image. Got {tuple(mask.shape)}.")
    if not bool(mask.any()):
        raise InputError("mask must have a missing pixel (True). Got none: there is nothing to fill in.")
    if bool(mask.all()):
        raise InputError("mask must leave a known pixel (False). Got none.")
    if not bool(torch.isfinite(image[..., ~mask]).all()):
        raise InputError("the known pixels of image must be finite. Got NaN or infinite values: mark them in mask.")
