"""A tiny random checkpoint: two Llama layers and a small byte-level tokenizer, the same bytes every time.

Greedy decoding of random weights soon repeats itself, so a proposer that looks for repeats has something to find.
"""

from __future__ import annotations

import sys
from pathlib import Path

_TEXT = """The quick brown fox jumps over the lazy dog. 한국어 문장도 들어 있습니다. Съешь ещё этих мягких булок.
def add(left, right): return left + right  # "quotes" and {braces}; 1 2 3 4 5 6 7 8 9 0
Tokens stream to clients through a decoupled model 🙂🚀 and the pieces joined equal the whole answer."""

_CHAT_TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"


def make(folder: Path, max_position: int = 2048, always_text: bool = False) -> Path:
    """Writes the checkpoint into the folder (about 1 MB) and returns it.

    With ``always_text`` every token that it writes has text of its own: no part of a character, never the end.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|end|>"],
        initial_alphabet=[] if always_text else pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_ascii(_TEXT) if always_text else _TEXT], trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    wrapped.chat_template = _CHAT_TEMPLATE
    wrapped.save_pretrained(folder)

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size() if always_text else 512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=max_position,
        eos_token_id=0,
        bos_token_id=0,
        pad_token_id=0,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    if always_text:
        model.lm_head.weight.data[0] = 0.0  # of all the logits one is above zero
    model.generation_config = GenerationConfig(eos_token_id=0)
    model.save_pretrained(folder)
    return folder


def _ascii(text: str) -> str:
    return text.encode("ascii", "ignore").decode()


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
