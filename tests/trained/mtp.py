"""The target with a layer that predicts one token more (MTP), in the shape of ERNIE 4.5.

Without experts, ERNIE's layers compute what Llama's do; only its rotary positions turn neighbouring numbers instead of
the halves of a head. So this target is the Llama with the rows of its queries and keys reordered, and says the same.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Ernie4_5_MoeConfig, GenerationConfig, LlamaForCausalLM

from trained import unrolled
from trained.files import write
from trained.layer import Layer, Steps, norm
from trained.target import HEAD_DIM, HIDDEN, LAYERS, Lessons, config
from trained.tokenizer import END_ID


class Block(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = norm()


class Mtp(nn.Module):
    """Named as vLLM reads it; its block is a Llama layer, rotary positions included. Logits come without a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.mtp_emb_norm = nn.ModuleList([norm()])
        self.mtp_hidden_norm = nn.ModuleList([norm()])
        self.mtp_linear_proj = nn.ModuleList([nn.Linear(2 * HIDDEN, HIDDEN, bias=False)])
        self.mtp_block = nn.ModuleList([Block()])

    def begin(self, lessons: Lessons, rows: Tensor) -> Tensor:
        return lessons.final[rows]

    def step(self, embedded: Tensor, hidden: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
        # vLLM blanks the token at the first position.
        embedded = torch.cat([torch.zeros_like(embedded[:, :1]), embedded[:, 1:]], dim=1)
        both = torch.cat([self.mtp_emb_norm[0](embedded), self.mtp_hidden_norm[0](hidden)], dim=-1)
        fused = self.mtp_linear_proj[0](both)
        block = self.mtp_block[0]
        hidden = block(block.input_layernorm(fused), fused, steps)
        return hidden, hidden

    def logits(self, hidden: Tensor, lessons: Lessons) -> Tensor:
        return hidden @ lessons.head.T


def train(lessons: Lessons, steps: int) -> Mtp:
    head = Mtp()
    unrolled.train("mtp", head, lessons, steps=steps, rate=3e-3)
    return head


def save(model: LlamaForCausalLM, head: Mtp, folder: Path) -> None:
    weights = {name: _reordered(name, weight) for name, weight in model.state_dict().items()}
    write(folder, _config(), weights | {f"model.{name}": weight for name, weight in head.state_dict().items()})
    GenerationConfig(eos_token_id=END_ID).save_pretrained(folder)


def _reordered(name: str, weight: Tensor) -> Tensor:
    """Rows of queries and keys: from the halves of each head to pairs side by side."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    return weight.view(-1, 2, HEAD_DIM // 2, HIDDEN).transpose(1, 2).reshape(weight.shape).contiguous()


def _config() -> Ernie4_5_MoeConfig:
    llama = config()
    shape = Ernie4_5_MoeConfig(
        vocab_size=llama.vocab_size,
        hidden_size=llama.hidden_size,
        intermediate_size=llama.intermediate_size,
        num_hidden_layers=llama.num_hidden_layers,
        num_attention_heads=llama.num_attention_heads,
        num_key_value_heads=llama.num_key_value_heads,
        max_position_embeddings=llama.max_position_embeddings,
        rms_norm_eps=llama.rms_norm_eps,
        rope_parameters=llama.rope_parameters,
        eos_token_id=END_ID,
        bos_token_id=END_ID,
        pad_token_id=END_ID,
        tie_word_embeddings=False,
        # Experts begin beyond the last layer: there are none.
        moe_layer_start_index=LAYERS + 1,
        moe_layer_end_index=LAYERS + 1,
        dtype="float32",
        architectures=["Ernie4_5_MoeForCausalLM"],
    )
    shape.num_nextn_predict_layers = 1
    return shape
