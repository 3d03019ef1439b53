"""Training of the heads that draft in turn (EAGLE, EAGLE-3, MTP), for several tokens ahead."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from trained.layer import Steps
from trained.target import Lessons
from trained.training import distance, fit, report

AHEAD = 3


class Head(Protocol):
    """What differs between them. All shapes are [rows, length, …]."""

    def begin(self, lessons: Lessons, rows: Tensor) -> Tensor:
        """The hidden states that the first step starts from."""

    def step(self, embedded: Tensor, hidden: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
        """From the tokens' embeddings and the hidden states before them: what the logits and the next step get."""

    def logits(self, hidden: Tensor, lessons: Lessons) -> Tensor:
        """The drafted token's logits."""


def train(name: str, head: Head, lessons: Lessons, *, steps: int, rate: float) -> None:
    """Teaches the head to draft what the target would say, ``AHEAD`` tokens in turn."""
    assert isinstance(head, nn.Module)

    def loss_of(batch: Tensor) -> Tensor:
        wanted = lessons.logits(batch)[:, 1:]
        losses = [
            distance(drafted[:, ahead:], wanted[:, ahead:]) for ahead, drafted in enumerate(draft(head, lessons, batch))
        ]
        return torch.stack(losses).mean()

    fit(name, head, loss_of, rows=len(lessons), batch=4, steps=steps, rate=rate)


def draft(head: Head, lessons: Lessons, batch: Tensor) -> list[Tensor]:
    """The logits [batch, length - 1, vocabulary] of each step; at position p all of them are for the token p + 2.

    The first step reads, at position p, the target's hidden state of p and the token p + 1. A further step reads there
    its own hidden state of p - 1, so its first positions have nothing to start from.
    """
    embedded = lessons.embedding[lessons.tokens[batch, 1:]]
    hidden = head.begin(lessons, batch)[:, :-1]
    steps = Steps()
    drafted = []
    for _ in range(AHEAD):
        for_logits, hidden = head.step(embedded, hidden, steps)
        drafted.append(head.logits(for_logits, lessons))
        hidden = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
    return drafted


@torch.no_grad()
def report_agreement(name: str, head: Head, lessons: Lessons) -> None:
    """How often the first, the first two, … drafted tokens are the target's own choice."""
    everything = torch.arange(len(lessons))
    chosen = lessons.logits(everything).argmax(-1)[:, 1:]
    right = [drafted.argmax(-1) == chosen for drafted in draft(head, lessons, everything)]
    # The step of a token that lies further ahead stands one position later.
    together, shares = right[0], []
    for ahead in range(AHEAD):
        if ahead:
            together = together[:, :-1] & right[ahead][:, ahead:]
        shares.append(together.float().mean().item())
    report(f"{name}: agrees on held-out text {' '.join(f'{share:.2f}' for share in shares)}")
