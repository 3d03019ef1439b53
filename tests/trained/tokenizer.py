"""The tokenizer that all checkpoints share: byte-level BPE, learned from the training text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer as Bpe
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from trained.text import END, Document

VOCABULARY = 512
END_ID = 0


class Tokenizer:
    """Text to token ids and back; every byte has a token, so every text can be written."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._bpe = Bpe(models.BPE())
        self._bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._bpe.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        self._bpe.train_from_iterator((document.prompt + document.rest for document in documents), trainer)

    @cached_property
    def _wrapped(self) -> PreTrainedTokenizerFast:
        return PreTrainedTokenizerFast(tokenizer_object=self._bpe, eos_token=END, pad_token=END)

    def ids(self, document: Document) -> list[int]:
        """The tokens of the whole document and the end token."""
        return [*self._bpe.encode(document.prompt + document.rest).ids, END_ID]

    def save(self, folder: Path) -> None:
        self._wrapped.save_pretrained(folder)
