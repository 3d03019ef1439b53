"""The draft model: a Llama of two layers that learned to say what the target would."""

from __future__ import annotations

from torch import Tensor
from transformers import LlamaForCausalLM

from trained.target import Lessons, config
from trained.training import distance, fit


def train(lessons: Lessons, steps: int) -> LlamaForCausalLM:
    # Two layers, since looking back at what was said before takes two.
    model = LlamaForCausalLM(config(layers=2))

    def loss_of(batch: Tensor) -> Tensor:
        return distance(model(input_ids=lessons.tokens[batch]).logits, lessons.logits(batch))

    fit("draft_model", model, loss_of, rows=len(lessons), batch=4, steps=steps, rate=4e-3)
    return model
