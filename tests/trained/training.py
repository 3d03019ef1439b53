"""What every stage of training does alike: rows of tokens, one loop of optimisation, one seed."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

SEED = 7


def set_up() -> None:
    """The same numbers every time: one seed, one thread, and no operation whose result may vary."""
    # The matrices are too small to gain from a second thread, and beside other work the two wait for each other.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)


def rows(documents: Iterable[list[int]], length: int) -> Tensor:
    """Token ids [rows, length]: each row begins with a document, goes on with the next ones and is cut.

    A request begins at position 0 too, and with the end token ignored it goes on with another document.
    """
    filled: list[list[int]] = []
    row: list[int] = []
    for ids in documents:
        row.extend(ids)
        if len(row) >= length:
            filled.append(row[:length])
            row = []
    return torch.tensor(filled)


def fit(
    name: str, module: nn.Module, loss_of: Callable[[Tensor], Tensor], *, rows: int, batch: int, steps: int, rate: float
) -> None:
    """Trains ``module`` for ``steps`` batches; ``loss_of`` gets the indices [batch] of the rows to take."""
    start = time.monotonic()
    torch.manual_seed(SEED)
    optimizer = torch.optim.AdamW(module.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share_of_rate(step, steps))
    order = torch.cat([torch.randperm(rows) for _ in range(math.ceil(batch * steps / rows))])
    module.train()
    for step in range(steps):
        loss = loss_of(order[step * batch : (step + 1) * batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    module.eval()
    report(f"{name}: {steps} steps in {time.monotonic() - start:.1f} s, loss {loss.item():.3f}")


def _share_of_rate(step: int, steps: int) -> float:
    """Up within a twentieth of the steps, then down as a cosine to a twentieth of the rate."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def distance(drafted: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy of drafted logits [..., vocabulary] against the distribution of the wanted ones, averaged."""
    return -(wanted.softmax(-1) * drafted.log_softmax(-1)).sum(-1).mean()


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
