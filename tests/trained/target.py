"""The target: a Llama of eight layers, as many as EAGLE-3's three places to look at need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from trained.files import write
from trained.tokenizer import END_ID, VOCABULARY
from trained.training import fit

LAYERS = 8
HIDDEN = 64
HEAD_DIM = 32
CONTEXT = 2048
# Where EAGLE-3 looks by vLLM's default: the sum after so many layers, before any norm.
AUXILIARY = (2, LAYERS // 2, LAYERS - 3)


def config(layers: int = LAYERS, hidden: int = HIDDEN) -> LlamaConfig:
    """A Llama's configuration; RBLN takes head sizes from 32 upward."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_DIM,
        num_key_value_heads=hidden // HEAD_DIM,
        max_position_embeddings=CONTEXT,
        eos_token_id=END_ID,
        bos_token_id=END_ID,
        pad_token_id=END_ID,
        tie_word_embeddings=False,
        # Five times the default, which is meant for wide models: this narrow one learns to copy in half the steps.
        initializer_range=0.1,
        dtype="float32",
        architectures=["LlamaForCausalLM"],
    )


def train(tokens: Tensor, steps: int) -> LlamaForCausalLM:
    """A target that learned the rows of tokens [rows, length]."""
    model = LlamaForCausalLM(config())

    def loss_of(batch: Tensor) -> Tensor:
        return model(input_ids=tokens[batch], labels=tokens[batch]).loss

    fit("target", model, loss_of, rows=len(tokens), batch=4, steps=steps, rate=4e-3)
    return model


def save(model: LlamaForCausalLM, folder: Path) -> None:
    write(folder, model.config, model.state_dict())
    GenerationConfig(eos_token_id=END_ID).save_pretrained(folder)


@dataclass(frozen=True)
class Lessons:
    """What a target thought while it read rows of tokens: what its drafts learn from.

    tokens [rows, length], final [rows, length, hidden] behind the last norm, auxiliary [rows, length, 3 * hidden]
    before any norm; embedding and head are its weights [vocabulary, hidden].
    """

    tokens: Tensor
    final: Tensor
    auxiliary: Tensor
    embedding: Tensor
    head: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def logits(self, rows: Tensor) -> Tensor:
        """The target's logits [rows, length, vocabulary]: at a position, for the token behind it."""
        return self.final[rows] @ self.head.T


@torch.no_grad()
def lessons(model: LlamaForCausalLM, tokens: Tensor) -> Lessons:
    """The target reads the tokens [rows, length] and its thoughts are kept."""
    final, auxiliary = [], []
    for part in tokens.split(32):
        states = model.model(input_ids=part, output_hidden_states=True)
        final.append(states.last_hidden_state)
        auxiliary.append(torch.cat([states.hidden_states[place] for place in AUXILIARY], dim=-1))
    embedding, head = model.model.embed_tokens.weight.detach(), model.lm_head.weight.detach()
    return Lessons(tokens, torch.cat(final), torch.cat(auxiliary), embedding, head)
