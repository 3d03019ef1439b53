"""Random checkpoints whose vocabulary is six letters, so that a distribution over whole answers can be counted."""

from __future__ import annotations

from pathlib import Path

LETTERS = "abcdef"
_SHARPNESS = 60.0  # random weights of the usual size give every letter nearly the same chance


def make_target_and_draft(folder: Path) -> tuple[Path, Path]:
    """Writes both checkpoints into the folder; the draft is the target with some noise."""
    import torch

    target = _model()
    _write(target, folder / "target")
    draft = _model()
    with torch.no_grad():
        noise = torch.randn(draft.lm_head.weight.shape, generator=torch.Generator().manual_seed(2))
        draft.lm_head.weight += 0.7 * draft.lm_head.weight.std() * noise
    _write(draft, folder / "draft")
    return folder / "target", folder / "draft"


def _model():  # type: ignore[no-untyped-def]
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(LETTERS),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight *= _SHARPNESS / len(LETTERS)
    return model


def _write(model, folder: Path) -> None:  # type: ignore[no-untyped-def]
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(LETTERS)}, LETTERS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    model.save_pretrained(folder)
