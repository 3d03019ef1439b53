"""The EAGLE head: the next token's embedding and the target's hidden state, fused and sent through one layer."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from trained import unrolled
from trained.files import write
from trained.layer import Layer, Steps
from trained.target import HIDDEN, Lessons, config


class Eagle(nn.Module):
    """Named as vLLM reads it: ``fc``, ``layers.0`` (without a first norm); embedding and head are the target's."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.layers = nn.ModuleList([Layer()])

    def begin(self, lessons: Lessons, rows: Tensor) -> Tensor:
        return lessons.final[rows]

    def step(self, embedded: Tensor, hidden: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
        fused = self.fc(torch.cat([embedded, hidden], dim=-1))
        hidden = self.layers[0](fused, fused, steps)
        return hidden, hidden

    def logits(self, hidden: Tensor, lessons: Lessons) -> Tensor:
        return hidden @ lessons.head.T


def train(lessons: Lessons, steps: int) -> Eagle:
    head = Eagle()
    unrolled.train("eagle", head, lessons, steps=steps, rate=3e-3)
    return head


def save(head: Eagle, folder: Path) -> None:
    write(folder, config(layers=1), head.state_dict())
