"""A draft and a target that don't belong together are told apart by their config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rbln_vllm_backend import config
from rbln_vllm_backend.errors import ConfigError


def checkpoint(folder: Path, **numbers: object) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(numbers))
    return str(folder)


def faults(method: str, draft: str, target: str) -> list[str]:
    parameters = {"model": target, "spec_method": method, "spec_model": draft, "spec_tokens": "3"}
    try:
        config.read(parameters, Path("/"))
    except ConfigError as error:
        return [str(fault) for fault in error.faults]
    return []


@pytest.mark.parametrize("method", ["eagle", "eagle3", "medusa"])
def test_a_head_must_be_as_wide_as_its_target_and_share_its_vocabulary(method: str, tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", hidden_size=64, vocab_size=512)
    draft = checkpoint(tmp_path / "draft", hidden_size=32, vocab_size=500)
    assert faults(method, draft, target) == [
        f"speculative_config.model = {draft!r}: the draft's vocab_size is 500, and that of the target {target} is 512. "
        "Name a draft that was made for this target.",
        f"speculative_config.model = {draft!r}: the draft's hidden_size is 32, and that of the target {target} is 64. "
        "Name a draft that was made for this target.",
    ]


def test_a_draft_model_may_be_narrower(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", hidden_size=64, vocab_size=512)
    assert faults("draft_model", checkpoint(tmp_path / "draft", hidden_size=32, vocab_size=512), target) == []


def test_a_head_that_says_what_it_reads_may_be_narrower(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", hidden_size=64, vocab_size=512)
    draft = checkpoint(tmp_path / "draft", hidden_size=32, target_hidden_size=64, vocab_size=512)
    assert faults("eagle3", draft, target) == []


def test_medusa_drafts_no_more_tokens_than_it_has_heads(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", hidden_size=64, vocab_size=512)
    fits = checkpoint(tmp_path / "fits", hidden_size=64, vocab_size=512, num_heads=3)
    assert faults("medusa", fits, target) == []
    assert faults("medusa", checkpoint(tmp_path / "few", hidden_size=64, vocab_size=512, num_heads=2), target) == [
        "speculative_config.num_speculative_tokens = 3: the Medusa checkpoint has 2 heads, and each drafts one token. "
        "Set it to 2 at most."
    ]


def test_a_multimodal_targets_language_model_is_compared(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", text_config={"hidden_size": 64, "vocab_size": 512})
    assert faults("eagle", checkpoint(tmp_path / "fits", hidden_size=64, vocab_size=512), target) == []
    assert len(faults("eagle", checkpoint(tmp_path / "other", hidden_size=64, vocab_size=9), target)) == 1


def test_what_is_not_here_is_left_to_vllm(tmp_path: Path) -> None:
    draft = checkpoint(tmp_path / "draft", hidden_size=32, vocab_size=500)
    assert faults("eagle", draft, "org/target") == []
    assert faults("eagle", "org/draft", draft) == []


@pytest.mark.parametrize("odd", [{"text_config": 5}, {"num_heads": "many"}, {"vocab_size": None}])
def test_of_a_draft_whose_numbers_are_no_numbers_nothing_is_said_here(odd: dict[str, object], tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", hidden_size=64, vocab_size=512)
    assert faults("medusa", checkpoint(tmp_path / "draft", **odd), target) == []
