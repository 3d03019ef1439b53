"""A server with auto-complete off serves the file that `check --full-config` prints."""

from __future__ import annotations

from pathlib import Path

from model_repository import NGRAM, small_engine, write_model
from rbln_vllm_backend.model_folder import ModelFolder
from running_server import running

from .client import ask


def test_the_full_config_is_served_with_auto_complete_off(checkpoint: Path, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models", "llm", {**small_engine(checkpoint), **NGRAM})
    (folder / "config.pbtxt").write_text(ModelFolder(folder).full_config())
    with running(tmp_path / "models", tmp_path / "log", ["--disable-auto-complete-config"]) as server:
        answer = ask(server, "one two one two", {"max_tokens": 8, "ignore_eos": True})
        assert sum(answer.tokens) == 8


def test_a_short_config_with_auto_complete_off_says_what_to_add(checkpoint: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "llm", small_engine(checkpoint))
    options = ["--disable-auto-complete-config", "--exit-on-error=false"]
    with running(tmp_path / "models", tmp_path / "log", options, ready_deadline_s=None) as server:
        server.wait_for_log("decoupled = False: the model must be decoupled to stream. Set it to true; ", 30)
