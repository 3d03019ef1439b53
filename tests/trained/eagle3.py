"""The EAGLE-3 head: the target's hidden states of three places, fused, beside the next token's embedding."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from trained import unrolled
from trained.files import write
from trained.layer import Layer, Steps, norm
from trained.target import HIDDEN, Lessons, config
from trained.tokenizer import VOCABULARY


class MidLayer(Layer):
    """A layer whose attention reads the normed embedding beside the normed hidden state."""

    def __init__(self) -> None:
        super().__init__(width=2 * HIDDEN)
        self.input_layernorm = norm()
        self.hidden_norm = norm()


class Eagle3(nn.Module):
    """Named as vLLM reads it: ``fc``, ``midlayer``, ``norm``, ``lm_head``, ``embed_tokens``."""

    def __init__(self, lessons: Lessons) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * HIDDEN, HIDDEN, bias=False)
        self.midlayer = MidLayer()
        self.norm = norm()
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.lm_head.load_state_dict({"weight": lessons.head})

    def begin(self, lessons: Lessons, rows: Tensor) -> Tensor:
        return self.fc(lessons.auxiliary[rows])

    def step(self, embedded: Tensor, hidden: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
        layer = self.midlayer
        both = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], dim=-1)
        hidden = layer(both, hidden, steps)
        return self.norm(hidden), hidden

    def logits(self, hidden: Tensor, lessons: Lessons) -> Tensor:
        return self.lm_head(hidden)


def train(lessons: Lessons, steps: int) -> Eagle3:
    head = Eagle3(lessons)
    unrolled.train("eagle3", head, lessons, steps=steps, rate=3e-3)
    return head


def save(head: Eagle3, lessons: Lessons, folder: Path) -> None:
    shape = config(layers=1)
    shape.architectures = ["LlamaForCausalLMEagle3"]
    shape.draft_vocab_size = VOCABULARY
    write(folder, shape, {**head.state_dict(), "embed_tokens.weight": lessons.embedding})
