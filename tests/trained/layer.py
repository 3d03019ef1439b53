"""One Llama layer for heads that draft several tokens in turn, trained as they will run.

A head runs once for each token that it drafts: first over the text so far with the target's hidden states, then for
each further token with its own. While it trains, all positions do so side by side; ``Steps`` keeps what each step may
look at, so that training sees what inference sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from trained.target import HEAD_DIM, HIDDEN, config

_THETA = 10000.0  # LlamaConfig's default


@dataclass
class Steps:
    """Keys and values [rows, heads, length, head_dim] of the steps so far."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def seen(self, length: int) -> Tensor:
        """Which of the kept keys the newest step may look at: [length, steps * length] of booleans.

        At position p, step k has before it the first step up to p - k (the text) and one position of each later step
        (the tokens drafted since, itself the last).
        """
        newest = len(self.keys) - 1
        behind = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        text = behind >= newest
        drafted = [behind == newest - step for step in range(1, newest + 1)]
        return torch.cat([text, *drafted], dim=1)


class Attention(nn.Module):
    """Causal attention with rotary positions; ``width`` is what it reads, a multiple of the hidden size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, HIDDEN, bias=False)
        self.k_proj = nn.Linear(width, HIDDEN, bias=False)
        self.v_proj = nn.Linear(width, HIDDEN, bias=False)
        self.o_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden: Tensor, steps: Steps) -> Tensor:
        rows, length, _ = hidden.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(rows, length, -1, HEAD_DIM).transpose(1, 2)

        cosine, sine = _rotation(length)
        queries = _rotate(heads(self.q_proj(hidden)), cosine, sine)
        steps.keys.append(_rotate(heads(self.k_proj(hidden)), cosine, sine))
        steps.values.append(heads(self.v_proj(hidden)))
        mixed = functional.scaled_dot_product_attention(
            queries, torch.cat(steps.keys, dim=2), torch.cat(steps.values, dim=2), attn_mask=steps.seen(length)
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, HIDDEN))


def _rotation(length: int) -> tuple[Tensor, Tensor]:
    frequencies = 1.0 / _THETA ** (torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.arange(length)[:, None] * frequencies[None, :]
    return angles.cos(), angles.sin()


def _rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = config().intermediate_size
        self.gate_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.up_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.down_proj = nn.Linear(inner, HIDDEN, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


def norm() -> nn.RMSNorm:
    """A root mean square norm as the target's."""
    return nn.RMSNorm(HIDDEN, eps=config().rms_norm_eps)


class Layer(nn.Module):
    """Attention and MLP, each added to what came in; the norm before attention is the head's own affair."""

    def __init__(self, width: int = HIDDEN) -> None:
        super().__init__()
        self.self_attn = Attention(width)
        self.mlp = Mlp()
        self.post_attention_layernorm = norm()

    def forward(self, attended: Tensor, residual: Tensor, steps: Steps) -> Tensor:
        """``attended`` [rows, length, width] goes into attention, ``residual`` [rows, length, hidden] around it."""
        residual = residual + self.self_attn(attended, steps)
        return residual + self.mlp(self.post_attention_layernorm(residual))
