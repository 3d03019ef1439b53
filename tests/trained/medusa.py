"""The Medusa heads: one for each token ahead, all from the target's last hidden state alone."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PretrainedConfig

from trained.files import write
from trained.target import HIDDEN, Lessons
from trained.tokenizer import END_ID, VOCABULARY
from trained.training import distance, fit, report

# vLLM takes as many heads as tokens are asked for, and leaves those that a checkpoint lacks at random.
HEADS = 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN)])

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + functional.silu(self.layers[0](hidden))


class Medusa(nn.Module):
    """Named as vLLM reads it: ``blocks.i.layers.0`` and ``lm_heads.i``."""

    def __init__(self, lessons: Lessons) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(HEADS))
        self.lm_heads = nn.ModuleList(nn.Linear(HIDDEN, VOCABULARY, bias=False) for _ in range(HEADS))
        for lm_head in self.lm_heads:
            lm_head.load_state_dict({"weight": lessons.head})

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """Logits [rows, length, vocabulary] of each head: at position p, of the token p + 2 and those behind it."""
        return [lm_head(block(hidden)) for block, lm_head in zip(self.blocks, self.lm_heads, strict=True)]


def train(lessons: Lessons, steps: int) -> Medusa:
    heads = Medusa(lessons)

    def loss_of(batch: Tensor) -> Tensor:
        wanted = lessons.logits(batch)
        drafted = heads(lessons.final[batch])
        losses = [distance(logits[:, :-ahead], wanted[:, ahead:]) for ahead, logits in enumerate(drafted, start=1)]
        return torch.stack(losses).mean()

    fit("medusa", heads, loss_of, rows=len(lessons), batch=4, steps=steps, rate=3e-3)
    return heads


@torch.no_grad()
def report_agreement(heads: Medusa, lessons: Lessons) -> None:
    """How often the first, the first two, … drafted tokens are the target's own choice."""
    chosen = lessons.logits(torch.arange(len(lessons))).argmax(-1)
    together = torch.ones_like(chosen, dtype=torch.bool)
    shares = []
    for ahead, logits in enumerate(heads(lessons.final), start=1):
        together = together[:, : chosen.shape[1] - ahead] & (logits.argmax(-1)[:, :-ahead] == chosen[:, ahead:])
        shares.append(together.float().mean().item())
    report(f"medusa: agrees on held-out text {' '.join(f'{share:.2f}' for share in shares)}")


def save(heads: Medusa, folder: Path) -> None:
    shape = PretrainedConfig(
        architectures=["MedusaModel"],
        hidden_size=HIDDEN,
        vocab_size=VOCABULARY,
        num_heads=HEADS,
        num_hidden_layers=1,
        medusa_fc_bias=True,
        eos_token_id=END_ID,
        dtype="float32",
    )
    shape.model_type = "medusa"
    write(folder, shape, heads.state_dict())
