"""Multi-head self-attention with an infinite-width limit."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ntkit._src.common import check_choice, check_integer
from ntkit.errors import InputError, InputTypeError

from ._elementwise import Elementwise

Mechanism = Literal["softmax", "identity", "relu", "abs"]
_DIGITS = 1e-8  # rounding, relative to the largest entry of a covariance


class WrongInput(InputError):
    """Raised for an input that ``layer`` does not accept."""

    def __init__(self, message: str, layer: nn.Module) -> None:
        super().__init__(message)
        self.layer = layer


class SelfAttention(nn.Module):
    r"""Multi-head self-attention whose heads and key width go to infinity together (Hron et al. 2020).

    In head h, with :math:`q, k, v` linear in the tokens and d the width of a head,

    .. math:: y_a = W_o [z(G^1) v^1, ..., z(G^H) v^H]_a + b, \qquad G^h = q^h {k^h}^T / \sqrt{d}.

    With K the covariance of the tokens, q the product of the query and key gains, o that of the value and output gains, the
    logits of ``scaling="sqrt"`` tend to Gaussians with :math:`Cov[G_{ab}(x), G_{a'b'}(x')] = q^2 K_{aa'} K_{bb'}`, so
    :math:`K'_{aa'} = o^2 \sum_{bb'} E[z(G_{ab}) z(G_{a'b'})] K_{bb'} + b^2`. Those of ``scaling="linear"``, which divides by d,
    tend to numbers, :math:`G_{ab} = q K_{ab}(x, x)`, and :math:`K' = o^2 z(G(x)) K z(G(x'))^T + b^2`.

    Parameters
    ----------
    channels
        Channels of the input and of the output.
    heads
        Number of heads, which must divide ``channels`` unless ``key_channels`` is given. A single head stays random however
        wide it is, so its limit at ``scaling="sqrt"`` is not a Gaussian process and :func:`ntkit.infinite_width` refuses it.
    mechanism
        z: ``"softmax"`` over the keys, ``"identity"``, ``"relu"``, ``"abs"``, or an :class:`ntkit.Elementwise`. Softmax with
        ``scaling="sqrt"`` has no closed form: :func:`ntkit.infinite_width` then needs ``attention_samples``.
    scaling
        Logits are divided by ``"sqrt"``, :math:`\sqrt{d}`, or ``"linear"``, d.
    tied
        Whether queries and keys share their weights, so that q is the square of one gain; only with ``scaling="linear"``.
        With that scaling the products of untied queries and keys vanish, and softmax is the mean over the tokens.
    bias
        Whether the output has a bias. Queries, keys and values have none.
    positions
        Covariance R of random positional embeddings, shape (tokens, tokens), symmetric and positive semidefinite, added to
        the input of queries and keys: ``r**2 * torch.eye(tokens)`` for independent ones at each token. They are trained. None:
        no embeddings.
    position_values
        Whether the values read the embeddings too.
    mask
        Boolean, shape (tokens, tokens): True hides the key (second index) from the query, as in ``nn.MultiheadAttention``;
        ``"causal"`` hides all later tokens, whatever their number. Hidden keys have weight zero. None: none is hidden.
    key_channels
        Width d of a head; default ``channels // heads``.

    See Also
    --------
    ntkit.infinite_width : its limit.
    torch.nn.MultiheadAttention : the same with ``mechanism="softmax"``, and biases of queries, keys and values.

    Notes
    -----
    Inputs are (n, tokens, channels), or images (n, channels, H, W), whose pixels are tokens row by row.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> attention = ntkit.layers.SelfAttention(8, heads=4, mechanism="relu")
    >>> attention(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    >>> net = nn.Sequential(nn.Linear(3, 8), attention, nn.Flatten(), nn.Linear(40, 1))
    >>> ntkit.infinite_width(net).ntk(torch.ones(2, 5, 3)).shape
    torch.Size([2, 2])
    """

    mask: Tensor | None
    position_root: Tensor | None

    def __init__(
        self,
        channels: int,
        heads: int,
        mechanism: Mechanism | Elementwise = "softmax",
        scaling: Literal["sqrt", "linear"] = "sqrt",
        tied: bool = False,
        bias: bool = True,
        positions: Tensor | None = None,
        *,
        position_values: bool = False,
        mask: Tensor | Literal["causal"] | None = None,
        key_channels: int | None = None,
    ) -> None:
        super().__init__()
        check_integer("channels", channels, 1)
        check_integer("heads", heads, 1)
        if key_channels is None and channels % heads:
            raise InputError(
                f"channels must be divisible by heads. Got channels={channels} and heads={heads}. Choose a divisor, or pass "
                "key_channels, the width of a head."
            )
        if not isinstance(mechanism, Elementwise):
            check_choice("mechanism", mechanism, get_args(Mechanism), " or an ntkit.Elementwise")
        check_choice("scaling", scaling, ("sqrt", "linear"))
        if tied and scaling == "sqrt":
            raise InputError(
                'tied queries and keys have logits of mean sqrt(d), which grow without bound at scaling="sqrt". '
                'Write scaling="linear" or tied=False.'
            )
        if position_values and positions is None:
            raise InputError("position_values=True needs positions. Pass their covariance, such as torch.eye(tokens).")
        self.channels, self.heads = channels, heads
        self.key_channels = (
            channels // heads if key_channels is None else check_integer("key_channels", key_channels, 1)
        )
        self.mechanism = mechanism
        self.scaling, self.tied, self.position_values = scaling, tied, position_values
        width = heads * self.key_channels
        self.query = nn.Linear(channels, width, bias=False)
        self.key = None if tied else nn.Linear(channels, width, bias=False)
        self.value = nn.Linear(channels, width, bias=False)
        self.out = nn.Linear(width, channels, bias=bias)
        self.causal = isinstance(mask, str)
        self.register_buffer("mask", None if mask is None else _checked_mask(mask))
        root = None if positions is None else _root(positions)
        self.register_buffer("position_root", root)
        self.position = None if root is None else nn.Parameter(torch.empty(len(root), channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw the positional embeddings as standard normals; the projections are separate layers."""
        if self.position is not None:
            nn.init.normal_(self.position)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, tokens, channels) from (n, tokens, channels), or (n, channels, H, W) from (n, channels, H, W)."""
        if x.ndim not in (3, 4) or x.shape[-1 if x.ndim == 3 else 1] != self.channels:
            raise WrongInput(
                f"SelfAttention must have inputs of shape (n, tokens, {self.channels}) or (n, {self.channels}, H, W). "
                f"Got {tuple(x.shape)}.",
                self,
            )
        h = x.flatten(2).transpose(1, 2) if x.ndim == 4 else x
        located = h
        if self.position is not None:
            self._check_tokens("positions", self.position.shape[0], h.shape[1])
            assert self.position_root is not None
            located = h + self.position_root.to(self.position.dtype) @ self.position
        queries = self._heads(self.query(located))
        keys = queries if self.key is None else self._heads(self.key(located))
        values = self._heads(self.value(located if self.position_values else h))
        divisor = self.key_channels if self.scaling == "linear" else math.sqrt(self.key_channels)
        weights = self._weights(queries @ keys.transpose(-2, -1) / divisor)
        y: Tensor = self.out((weights @ values).transpose(1, 2).flatten(2))
        return y.transpose(1, 2).unflatten(2, x.shape[2:]) if x.ndim == 4 else y

    def hidden(self, tokens: int) -> Tensor | None:
        """Return which keys are hidden from which queries, shape (tokens, tokens), boolean; None if no key is hidden."""
        if self.causal:
            return torch.ones(tokens, tokens, dtype=torch.bool, device=self.out.weight.device).triu(1)
        if self.mask is None:
            return None
        self._check_tokens("mask", len(self.mask), tokens)
        return self.mask

    def _heads(self, x: Tensor) -> Tensor:
        """Return (n, heads, tokens, d) from (n, tokens, heads * d)."""
        heads: Tensor = x.unflatten(-1, (self.heads, -1))
        return heads.transpose(1, 2)

    def _weights(self, logits: Tensor) -> Tensor:
        hidden = self.hidden(logits.shape[-1])
        if self.mechanism == "softmax":
            return (logits if hidden is None else logits.masked_fill(hidden, -math.inf)).softmax(-1)
        if isinstance(self.mechanism, Elementwise):
            weights: Tensor = self.mechanism(logits)
        else:
            weights = {"identity": lambda g: g, "relu": torch.relu, "abs": torch.abs}[self.mechanism](logits)
        return weights if hidden is None else weights.masked_fill(hidden, 0.0)

    def _check_tokens(self, name: str, expected: int, got: int) -> None:
        if expected != got:
            raise WrongInput(
                f"SelfAttention has {name} for {expected} tokens. Got an input of {got} tokens. Build it with {name} of shape "
                f"({got}, {got}).",
                self,
            )

    def extra_repr(self) -> str:
        """Show the arguments."""
        parts = [f"{self.channels}, heads={self.heads}, key_channels={self.key_channels}, scaling={self.scaling!r}"]
        if isinstance(self.mechanism, str):
            parts.append(f"mechanism={self.mechanism!r}")
        parts += [f"{name}=True" for name in ("tied", "position_values", "causal") if getattr(self, name)]
        return ", ".join(parts)


def _checked_mask(mask: object) -> Tensor | None:
    if isinstance(mask, str):
        if mask != "causal":
            raise InputError(f'mask must be a boolean tensor or "causal". Got {mask!r}.')
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = str(mask.dtype) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputTypeError(f"mask must be a boolean tensor, True where a key is hidden. Got {kind}.")
    if mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
        raise InputError(f"mask must have shape (tokens, tokens). Got {tuple(mask.shape)}.")
    blind = mask.all(1).nonzero().flatten().tolist()
    if blind:
        raise InputError(f"mask must leave every query a key that it sees. Got none for the queries {blind}.")
    return mask.clone()


def _root(covariance: object) -> Tensor:
    """Return L with L L^T = R, shape (tokens, tokens)."""
    if not isinstance(covariance, Tensor) or not covariance.is_floating_point():
        kind = str(covariance.dtype) if isinstance(covariance, Tensor) else type(covariance).__name__
        raise InputTypeError(
            f"positions must be the covariance of the embeddings, a floating-point tensor of shape (tokens, tokens). Got {kind}. "
            "Write r**2 * torch.eye(tokens)."
        )
    r = covariance.detach()
    if r.ndim != 2 or r.shape[0] != r.shape[1] or len(r) == 0:
        raise InputError(f"positions must have shape (tokens, tokens). Got {tuple(r.shape)}.")
    if not bool(torch.isfinite(r).all()):
        raise InputError("positions must be finite. Got NaN or infinite values.")
    values, vectors = torch.linalg.eigh(r.double())
    largest = float(values.abs().max())
    symmetric = torch.allclose(r, r.T, rtol=0.0, atol=_DIGITS * largest)
    if not symmetric or float(values.min()) < -_DIGITS * max(largest, 1e-300):
        raise InputError(
            "positions must be symmetric and positive semidefinite, as a covariance is. Got a matrix that is not symmetric, or "
            f"whose smallest eigenvalue is {float(values.min()):.3g}."
        )
    root: Tensor = (vectors * values.clamp_min(0.0).sqrt()).to(r.dtype)
    return root
