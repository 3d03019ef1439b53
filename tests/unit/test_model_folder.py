"""The check command: what the engine would get, or every fault; the complete file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from model_repository import NGRAM, config_text
from rbln_vllm_backend import cli
from rbln_vllm_backend.errors import ConfigError
from rbln_vllm_backend.model_folder import ModelFolder
from rbln_vllm_backend.wire import INPUTS, OUTPUTS, UNARY_OUTPUTS

ROOT = Path(__file__).parents[2]


def folder_with(text: str, tmp_path: Path) -> str:
    (tmp_path / "config.pbtxt").write_text(text, encoding="utf-8")
    return str(tmp_path)


def test_the_report_says_what_the_engine_would_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = config_text("llm", {"model": "org/name", **NGRAM, "env.HF_TOKEN": "hush", "env.X": "1"})
    assert cli.main(["check", folder_with(text, tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "platform: cpu (serving.platform is auto, and vllm-rbln is not installed)\n"
        "engine flags\n"
        "  model = org/name\n"
        "  (not checked: vLLM isn't installed here, and only its parser knows the flags)\n"
        "speculation\n"
        "  method = ngram\n"
        "  num_speculative_tokens = 4\n"
        "  prompt_lookup_max = 3\n"
        "  prompt_lookup_min = 1\n"
        "serving options\n"
        "  serving.allow_cancel_by_id = false\n"
        "  serving.cancel_poll_interval_s = 0.1\n"
        "  serving.chat_template = (not set)\n"
        "  serving.default_chat_template_kwargs = {}\n"
        "  serving.default_timeout_s = (not set)\n"
        "  serving.drain_timeout_s = 20\n"
        "  serving.engine_restarts = 3\n"
        "  serving.engine_stall_s = 300\n"
        "  serving.ignored_parameters = id\n"
        "  serving.max_inflight_requests = (not set)\n"
        "  serving.max_n = 16\n"
        "  serving.max_prompt_tokens = (not set)\n"
        "  serving.max_request_bytes = 16777216\n"
        "  serving.max_tokens_cap = (not set)\n"
        "  serving.metrics_interval_s = 2\n"
        "  serving.npu_groups = (not set)\n"
        "  serving.platform = auto\n"
        "  serving.structured_outputs = json,regex,choice,grammar,json_object,structural_tag\n"
        "  serving.warmup = true\n"
        "environment\n"
        "  HF_TOKEN = (hidden)\n"
        "  X = 1\n"
    )


def test_a_file_for_an_npu_is_checked_without_the_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npu = {"model": "org/name", "serving.platform": "rbln", "rbln_compile_dtype": "bfloat16"}
    assert cli.main(["check", folder_with(config_text("llm", npu), tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "platform: rbln (serving.platform is rbln; plugin absent)",
        "engine flags",
        "  model = org/name",
        "  rbln_compile_dtype = bfloat16",
    ]
    assert cli.main(["check", folder_with(config_text("llm", {**npu, "rbln_compile_dtype": "int8"}), tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "1 fault in config.pbtxt:\n"
        "  - rbln_compile_dtype = 'int8': must be one of float16, bfloat16. Correct the value.\n"
    )


def test_faults_go_to_standard_error_with_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", folder_with(config_text("llm", {"serving.x": "1"}), tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("2 faults in config.pbtxt:\n")


@pytest.mark.parametrize("text", ["parameters {", "no_such_field: 1", "parameters { key: 5 }"])
def test_a_file_that_triton_could_not_read_is_refused_with_the_place(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", folder_with(text, tmp_path)]) == 1
    assert "not a model configuration (" in capsys.readouterr().err


def test_a_missing_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(tmp_path)]) == 1
    assert "can't be read" in capsys.readouterr().err


def test_the_full_config_is_complete_and_keeps_what_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = config_text("llm", {"model": "org/name"}) + 'input { name: "stream" data_type: TYPE_BOOL dims: [1] }\n'
    assert cli.main(["check", "--full-config", folder_with(text, tmp_path)]) == 0
    message = text_format.Parse(capsys.readouterr().out, model_config_pb2.ModelConfig())
    assert [tensor.name for tensor in message.input].count("stream") == 1
    assert {tensor.name for tensor in message.input} == {tensor.name for tensor in INPUTS}
    assert [tensor.name for tensor in message.output] == [tensor.name for tensor in OUTPUTS]
    assert message.model_transaction_policy.decoupled
    assert message.parameters["model"].string_value == "org/name"


def test_the_unary_model_is_checked_by_its_own_rules(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(ROOT / "model_repository" / "llm_unary")
    assert cli.main(["check", folder]) == 0
    assert capsys.readouterr().out == (
        "serving options\n"
        "  serving.cancel_poll_interval_s = 0.1\n"
        "  serving.drain_timeout_s = 20\n"
        "  serving.max_inflight_requests = 1024\n"
        "  serving.target_model = llm\n"
    )
    assert cli.main(["check", "--full-config", folder]) == 0
    message = text_format.Parse(capsys.readouterr().out, model_config_pb2.ModelConfig())
    assert {tensor.name for tensor in message.input} == {tensor.name for tensor in INPUTS}
    assert [tensor.name for tensor in message.output] == [tensor.name for tensor in UNARY_OUTPUTS]
    assert not message.model_transaction_policy.decoupled


def test_what_the_server_would_refuse_of_the_file_is_a_fault_of_the_check_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "max_batch_size: 8\nmodel_transaction_policy { decoupled: false }\n"
    parameters = {"model": "org/name", "serving.cancel_poll_interval_s": "x"}
    folder = folder_with(config_text("llm", parameters) + said, tmp_path)
    assert cli.main(["check", folder]) == 1
    refused = capsys.readouterr().err
    assert "3 faults in config.pbtxt" in refused
    assert "serving.cancel_poll_interval_s = 'x'" in refused
    assert "max_batch_size = 8: the engine makes its batches itself" in refused
    assert "model_transaction_policy.decoupled = False: the model must be decoupled to stream" in refused
    assert cli.main(["check", "--full-config", folder]) == 1
    assert "max_batch_size = 8" in capsys.readouterr().err


def test_what_triton_would_refuse_of_the_folder_is_a_fault_of_the_check_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "model_repository" / "llm", folder)
    text = config_text("llm", {"model": "org/name"})
    (folder / "config.pbtxt").write_text(text.replace('backend: "python"', 'backend: "vllm"'))
    for option in ([], ["--full-config"]):
        assert cli.main(["check", *option, str(folder)]) == 1
        refused = capsys.readouterr().err
        assert "backend = 'vllm': the model is one of Triton's Python backend. Set it to \"python\"." in refused
        assert "name = 'llm': Triton wants the name of the folder, which is mine. Remove it, or correct it." in refused


def test_no_full_config_is_printed_of_a_file_with_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with(config_text("llm", {"model": "org/name", "serving.no_such": "1"}), tmp_path)
    assert cli.main(["check", "--full-config", folder]) == 1
    said = capsys.readouterr()
    assert "serving.no_such" in said.err
    assert not said.out


def test_the_unary_models_file_is_held_to_its_own_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "llm_unary"
    shutil.copytree(ROOT / "model_repository" / "llm_unary", folder)
    with (folder / "config.pbtxt").open("a") as file:
        file.write("model_transaction_policy { decoupled: true }\n")
    assert cli.main(["check", str(folder)]) == 1
    assert "model_transaction_policy.decoupled = True: the unary model can't be decoupled" in capsys.readouterr().err


def test_the_committed_model_is_short_and_speculates_with_flat_keys() -> None:
    file = ROOT / "model_repository" / "llm" / "config.pbtxt"
    lines = file.read_text().splitlines()
    assert len(lines) <= 40
    assert any('"speculative_config.method" value { string_value: "ngram" }' in line for line in lines)


def test_an_unknown_option_is_refused_except_by_serve(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["check", ".", "--no-such-option"])
    assert "unrecognized arguments: --no-such-option" in capsys.readouterr().err


def test_serve_hands_further_options_to_tritonserver(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(cli, "serve", lambda repository, options: calls.append((repository, options)) or 3)
    assert cli.main(["serve", "--model-repository", "models", "--http-port=9000", "--log-verbose", "1"]) == 3
    assert calls == [("models", ["--http-port=9000", "--log-verbose", "1"])]


@pytest.mark.parametrize("name", ["bls", "ensemble"])
def test_a_model_that_is_not_of_this_backend_is_said_to_be_none(name: str) -> None:
    file = ROOT / "examples" / name / "config.pbtxt"
    with pytest.raises(ConfigError) as caught:
        ModelFolder(file.parent).check()
    assert str(caught.value) == (
        f"1 fault in config.pbtxt:\n  - {file}: not a model of this backend. "
        "Name the folder of a model whose model.py imports rbln_vllm_backend."
    )
