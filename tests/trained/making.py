"""The stages in their order: text, tokenizer, target, and what each draft learns from it."""

from __future__ import annotations

import time
from pathlib import Path

from trained import draft_model, eagle, eagle3, medusa, mtp, target, training, unrolled
from trained.text import held_out_documents, training_documents
from trained.tokenizer import Tokenizer

_DOCUMENTS = 8000
_LENGTH = 160
_LESSONS = 640


def make(folder: Path) -> None:
    """Trains all checkpoints and writes each into its folder below ``folder``."""
    start = time.monotonic()
    training.set_up()
    documents = list(training_documents(_DOCUMENTS, seed=1))
    tokenizer = Tokenizer(documents[:2000])
    tokens = training.rows(map(tokenizer.ids, documents), _LENGTH)
    unseen = training.rows(map(tokenizer.ids, held_out_documents(160)), _LENGTH)
    training.report(f"text: {tokens.numel()} tokens in {time.monotonic() - start:.1f} s")

    model = target.train(tokens, steps=1200)
    target.save(model, folder / "target")
    lessons, exam = target.lessons(model, tokens[:_LESSONS]), target.lessons(model, unseen)

    small = draft_model.train(lessons, steps=400)
    target.save(small, folder / "draft_model")

    head = eagle.train(lessons, steps=300)
    unrolled.report_agreement("eagle", head, exam)
    eagle.save(head, folder / "eagle")

    head3 = eagle3.train(lessons, steps=300)
    unrolled.report_agreement("eagle3", head3, exam)
    eagle3.save(head3, lessons, folder / "eagle3")

    heads = medusa.train(lessons, steps=300)
    medusa.report_agreement(heads, exam)
    medusa.save(heads, folder / "medusa")

    layer = mtp.train(lessons, steps=300)
    unrolled.report_agreement("mtp", layer, exam)
    mtp.save(model, layer, folder / "mtp_target")

    for name in ("target", "draft_model", "mtp_target"):
        tokenizer.save(folder / name)
    training.report(f"all: {time.monotonic() - start:.1f} s")
