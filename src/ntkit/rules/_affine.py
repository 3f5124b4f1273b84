"""Linear and convolutional layers: K' = w^2 M(K) + b^2, Theta' = K-terms of the trained parameters + w^2 M(Theta).

M is the identity for a linear layer and the mean over the window for a convolution, which moves over p and p' together:
M(K)[p, p'] = mean over e of K[s p + d e, s p' + d e]. It always divides by the full window; zero padding counts as zeros.
"""

from __future__ import annotations

from torch import Tensor

from ntkit.program import Conv, Dense, Gains, pad

from ._covariance import Covariance

__all__ = ["conv", "dense"]


def dense(op: Dense, x: Covariance) -> Covariance:
    """Apply a fully connected layer at every position."""
    return _fresh_weights(op.gains, x.settled())


def conv(op: Conv, x: Covariance) -> Covariance:
    """Apply a convolution."""
    return _fresh_weights(op.gains, x.settled().map(lambda k: _window_mean(op, x, k)))


def _fresh_weights(gains: Gains, mean: Covariance) -> Covariance:
    weight = gains.w_std**2
    nngp = weight * mean.nngp + gains.b_std**2
    ntk = None if mean.ntk is None else weight * mean.ntk
    if gains.trained:
        own = gains.weight_rate * mean.nngp + gains.bias_rate
        ntk = own if ntk is None else own + ntk
    return Covariance(nngp, ntk, mean.keeps)


def _window_mean(op: Conv, x: Covariance, k: Tensor) -> Tensor:
    # The window is a product of intervals, so the axes are averaged one after the other.
    for index, axis in enumerate(op.axes):
        dims = x.dims(axis)
        size = k.shape[dims[0]]
        out = op.output_size(index, size)
        kernel, stride, dilation = op.kernel[index], op.stride[index], op.dilation[index]
        for dim in dims:
            k = pad(k, dim, *op.padding[index], op.circular)
        total: Tensor | None = None
        for e in range(kernel):
            part = k
            for dim in dims:
                start = e * dilation
                part = part[(slice(None),) * dim + (slice(start, start + (out - 1) * stride + 1, stride),)]
            total = part if total is None else total + part
        assert total is not None
        k = total / kernel if kernel > 1 else total
    return k
