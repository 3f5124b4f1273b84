"""Inpainting: missing pixels by the kernel of a convolutional network."""

from ._encoder_decoder import encoder_decoder
from ._inpaint import Inpainting, inpaint
from ._kernel import InpaintingKernel

__all__ = ["Inpainting", "InpaintingKernel", "encoder_decoder", "inpaint"]
