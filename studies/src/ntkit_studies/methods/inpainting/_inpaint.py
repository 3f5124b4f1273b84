"""Missing pixels of an image by regression with the kernel between pixels of a convolutional network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import infinite_width
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import Progress, check_choice, check_gram_memory, check_number

from ._encoder_decoder import Upsampling, encoder_decoder
from ._held_out import RIDGES, choose
from ._kernel import InpaintingKernel
from ._pixel_regression import DenseRegression, SparseRegression

__all__ = ["Inpainting", "inpaint"]


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
    ridge
        Given or chosen, relative to the mean of the kernel's diagonal.
    """

    image: Tensor
    status: str
    iterations: int
    residual: float
    ridge: float


def inpaint(
    image: Tensor,
    mask: Tensor,
    module: nn.Module | InpaintingKernel | Literal["auto"] | None = None,
    prior: Tensor | Literal["stationary", "meshgrid"] = "stationary",
    solver: Literal["auto", "cg", "dense"] = "auto",
    *,
    levels: int = 3,
    upsampling: Upsampling = "nearest",
    ridge: float | Literal["auto"] = "auto",
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
    module : nn.Module, InpaintingKernel or "auto", optional
        The network, or its kernel, which then serves many images. ``"auto"``: the better of :func:`encoder_decoder` without and
        with a last convolution, on held-out pixels. Default None: the former.
    prior : {"stationary", "meshgrid"} or Tensor of shape (c, H, W)
        The input of the network. ``"stationary"``: noise. ``"meshgrid"``: the two coordinates between -1 and 1. An array:
        itself. The last two have no structure: the kernel between all pixels is held in memory, which is checked first. Default
        ``"stationary"``.
    solver : {"auto", "cg", "dense"}
        ``"cg"``: conjugate gradients and Sherman-Morrison, for the stationary prior. ``"dense"``: a Cholesky factorisation.
        ``"auto"``: dense up to 1,500 known pixels, or some thousands where the network sees the whole image, or where there is no
        structure. Default ``"auto"``.
    levels, upsampling
        See :class:`InpaintingKernel`. Defaults 3 and ``"nearest"``.
    ridge : float or "auto"
        Relative to the mean of the kernel's diagonal; without one, the kernel of nearly all pixels of an image is singular to
        rounding. ``"auto"``: the best of 1e-2, 1e-3, 1e-4 and 1e-5 on held-out pixels, a tenth of the known ones drawn with a
        fixed seed; 1e-4 below 20 known pixels. Default ``"auto"``.
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
    >>> rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    >>> image = torch.sin(rows / 5) + torch.cos(columns / 7)
    >>> mask = torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) < 0.5
    >>> filled = inpaint(image, mask, levels=2)
    >>> bool((filled.image - image)[mask].std() < 0.2 * image.std())
    True
    """
    _check_image(image, mask)
    ridges = RIDGES if isinstance(ridge, str) and ridge == "auto" else (check_number("ridge", ridge, 0),)
    check_choice("solver", solver, ("auto", "cg", "dense"))
    if clip is not None and (len(clip) != 2 or not clip[0] < clip[1]):
        raise InputError(f"clip must be two numbers, the smaller first. Got {clip!r}.")
    channels = image[None] if image.ndim == 2 else image
    known, missing = (np.flatnonzero(part.cpu().numpy().ravel()) for part in (~mask, mask))
    y = channels.flatten(1)[:, torch.from_numpy(known)].T.double().cpu().numpy()
    make: Callable[[nn.Module | InpaintingKernel | bool], SparseRegression | DenseRegression]
    if isinstance(prior, str) and prior == "stationary":
        dense = {"auto": None, "dense": True, "cg": False}[solver]
        make = partial(_sparse_regression, levels, upsampling, (mask.shape[0], mask.shape[1]), dense, max_iterations)
    else:
        if solver == "cg" or isinstance(module, InpaintingKernel):
            raise InputError(
                "a prior of data has a kernel without structure: leave solver out, and pass a network as module."
            )
        make = partial(_dense_regression, levels, upsampling, _given_prior(prior, mask.shape[0], mask.shape[1]))
    choice = choose([(name, partial(make, one)) for name, one in _networks(module, upsampling)], ridges, known, y)
    found = choice.regression.between(known, missing)(y, choice.ridge, tolerance, progress)
    values = found.values
    if clip is not None:
        values = values.clip(*clip)
    flat = channels.flatten(1).clone()
    flat[:, torch.from_numpy(missing).to(flat.device)] = torch.from_numpy(values.T).to(flat)
    status = " ".join(filter(None, (choice.status, found.status)))
    return Inpainting(flat.reshape(image.shape), status, found.iterations, found.residual, choice.ridge)


_NAMES = {False: "the encoder-decoder", True: "the encoder-decoder with one convolution more"}


def _networks(
    module: nn.Module | InpaintingKernel | Literal["auto"] | None, upsampling: Upsampling
) -> list[tuple[str, nn.Module | InpaintingKernel | bool]]:
    """Give the networks to choose among, with their names; a truth value says how an encoder-decoder ends."""
    if module is None:
        return [(_NAMES[False], False)]
    if isinstance(module, str):
        if module != "auto":
            raise InputError(f'module must be a network, its kernel, "auto" or None. Got {module!r}.')
        # With bilinear up-sampling the kernel of the second has no expansion.
        return [(_NAMES[last], last) for last in ((False, True) if upsampling == "nearest" else (False,))]
    return [("the network given", module)]


def _sparse_regression(
    levels: int,
    upsampling: Upsampling,
    shape: tuple[int, int],
    dense: bool | None,
    max_iterations: int,
    network: nn.Module | InpaintingKernel | bool,
) -> SparseRegression:
    """Expand the kernel of a network."""
    if isinstance(network, bool):
        kernel = InpaintingKernel(None, levels, upsampling, last_convolution=network)
    else:
        kernel = network if isinstance(network, InpaintingKernel) else InpaintingKernel(network, levels, upsampling)
    return SparseRegression(kernel, shape, dense, max_iterations)


def _given_prior(prior: Tensor | str, height: int, width: int) -> Tensor:
    """Give the network's input, shape (c, height, width), float64."""
    if isinstance(prior, str):
        check_choice("prior", prior, ("stationary", "meshgrid"), ", or an array of shape (c, H, W)")
        axes = [torch.linspace(-1, 1, side, dtype=torch.float64) for side in (height, width)]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"))
    if not isinstance(prior, Tensor):
        raise InputTypeError(f"prior must be a torch.Tensor or a name. Got {type(prior).__name__}.")
    if prior.ndim != 3 or tuple(prior.shape[1:]) != (height, width):
        raise InputError(f"prior must have the shape (c, {height}, {width}). Got {tuple(prior.shape)}.")
    return prior.detach().double().cpu()


def _dense_regression(
    levels: int, upsampling: Upsampling, given: Tensor, network: nn.Module | InpaintingKernel | bool
) -> DenseRegression:
    """Compute the kernel of a network between all pixels, for a prior of data."""
    channels, height, width = given.shape
    if isinstance(network, bool):
        if height % 2**levels or width % 2**levels:
            raise InputError(
                f"with a prior of data the sides must be multiples of {2**levels} for levels={levels}. Got {height} x {width}: "
                "pad image, mask (True) and prior, or take fewer levels."
            )
        network = encoder_decoder(levels, upsampling, channels, network)
    assert isinstance(network, nn.Module)  # a kernel was refused before
    pixels = height * width
    check_gram_memory(pixels, pixels, torch.float64, matrices=3, what="the kernel between all pixels")
    return DenseRegression(infinite_width(network).ntk.positions(given[None])[0, 0].reshape(pixels, pixels))


def _check_image(image: Tensor, mask: Tensor) -> None:
    for name, given in (("image", image), ("mask", mask)):
        if not isinstance(given, Tensor):
            raise InputTypeError(f"{name} must be a torch.Tensor. Got {type(given).__name__}: write torch.from_numpy.")
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
