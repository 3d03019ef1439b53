"""config.pbtxt's parameters: sorted, checked, every fault at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbln_vllm_backend import config
from rbln_vllm_backend.errors import ConfigError


def faults(parameters: dict[str, str], folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.read(parameters, folder)
    return [str(fault) for fault in caught.value.faults]


def test_parameters_are_sorted_by_who_reads_them(tmp_path: Path) -> None:
    settings = config.read(
        {
            "model": "org/name",
            "max_model_len": "1k",
            "compilation_config.mode": "0",
            "serving.warmup": "false",
            "env.VLLM_CPU_KVCACHE_SPACE": "1",
            "EXECUTION_ENV_PATH": "/opt/env",
            "speculative_config.method": "ngram",
            "speculative_config.num_speculative_tokens": "3",
        },
        tmp_path,
    )
    assert settings.engine_flags == {"model": "org/name", "max_model_len": "1k", "compilation_config.mode": "0"}
    assert settings.serving.warmup is False
    assert settings.environment == {"VLLM_CPU_KVCACHE_SPACE": "1"}
    assert settings.speculation is not None
    assert settings.speculation.options == {"method": "ngram", "num_speculative_tokens": 3}


def test_all_faults_are_reported_together(tmp_path: Path) -> None:
    found = faults(
        {
            "serving.warmpu": "true",
            "serving.warmup": "maybe",
            "env.1X": "1",
            "speculative_config.method": "ngram",
            "two words": "x",
        },
        tmp_path,
    )
    assert found == [
        "two words = 'x': not the name of a parameter. Use an engine flag's name with _ for -, such as max_model_len.",
        'model: the checkpoint to serve is missing. Set the parameter "model" to a folder or a hub id.',
        "speculative_config.num_speculative_tokens: the number of tokens to draft in a step is missing. "
        'Set speculative_config.num_speculative_tokens, for example to "3".',
        "serving.warmpu = 'true': no such option. Known: serving.warmup.",
        "serving.warmup = 'maybe': must be true or false. Correct the value or remove the parameter.",
        "env.1X = '1': not the name of an environment variable. Write env.NAME.",
    ]


def test_the_message_counts_and_lists_the_faults(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.read({}, tmp_path)
    assert str(caught.value) == (
        "1 fault in config.pbtxt:\n"
        '  - model: the checkpoint to serve is missing. Set the parameter "model" to a folder or a hub id.'
    )


def test_a_path_is_relative_to_the_config_and_must_be_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    assert faults({"model": "./weights"}, tmp_path) == [
        f"model = './weights': {tmp_path / 'weights'} holds no config.json. Name the folder of a checkpoint."
    ]
    (tmp_path / "weights" / "config.json").write_text("{}")
    assert config.read({"model": "./weights"}, tmp_path).engine_flags["model"] == str(tmp_path / "weights")
    assert config.read({"model": "../x/weights"}, _inside(tmp_path)).engine_flags["model"] == str(
        tmp_path / "x" / "weights"
    )


def _inside(tmp_path: Path) -> Path:
    (tmp_path / "x" / "weights").mkdir(parents=True)
    (tmp_path / "x" / "weights" / "config.json").write_text("{}")
    (tmp_path / "repository").mkdir()
    return tmp_path / "repository"


def test_a_missing_path_says_what_to_name_instead(tmp_path: Path) -> None:
    assert faults({"model": "/no/such/place"}, tmp_path) == [
        "model = '/no/such/place': the path /no/such/place doesn't exist. "
        "Name a checkpoint folder that the server can read, or a hub id without a leading / . or ~."
    ]


def test_the_missing_demo_model_names_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rbln_vllm_backend import demo_model

    monkeypatch.setattr(demo_model, "DEFAULT_FOLDER", tmp_path / "demo")
    (found,) = faults({"model": str(tmp_path / "demo")}, tmp_path)
    assert found.endswith("Make the demo model with `rbln-vllm-backend demo-model`, or name another checkpoint.")


def test_a_nested_option_is_given_whole_or_by_its_keys(tmp_path: Path) -> None:
    assert faults(
        {"model": "org/name", "additional_config": "{}", "additional_config.use_custom_sampler": "true"}, tmp_path
    ) == ["additional_config = '{}': given both as one JSON and as additional_config.…. Use one of the two."]


def test_tritons_json_form_gives_the_parameters() -> None:
    assert config.parameters_of({"parameters": {"model": {"string_value": "x"}}}) == {"model": "x"}
    assert config.parameters_of({}) == {}


def adapter(folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    return folder


def test_adapters_are_named_by_their_parameters(tmp_path: Path) -> None:
    path = adapter(tmp_path / "french")
    parameters = {"model": "org/name", "enable_lora": "true", "serving.lora.french": "./french"}
    settings = config.read({**parameters, "serving.lora.hub": "org/adapter"}, tmp_path)
    assert settings.adapters == {"french": str(path), "hub": "org/adapter"}


def test_adapters_that_cannot_be_are_named(tmp_path: Path) -> None:
    adapter(tmp_path / "french")
    assert faults({"model": "m/m", "serving.lora.french": "./french"}, tmp_path) == [
        'serving.lora.french: the engine takes adapters only with enable_lora. Set enable_lora to "true".'
    ]
    lora = {"model": "m/m", "enable_lora": "true"}
    assert faults({**lora, "serving.lora.x": "/nowhere", "serving.lora.": "./french"}, tmp_path) == [
        "serving.lora.x = '/nowhere': the path /nowhere doesn't exist. "
        "Name a checkpoint folder that the server can read, or a hub id without a leading / . or ~.",
        "serving.lora. = './french': name and folder of an adapter are wanted. Write serving.lora.NAME and a path.",
    ]


def test_on_rbln_npus_adapters_need_the_optimum_implementation(tmp_path: Path) -> None:
    parameters = {"model": "m/m", "enable_lora": "true", "model_impl": "vllm", "serving.platform": "rbln"}
    assert faults(parameters, tmp_path) == [
        "enable_lora = 'true': on RBLN NPUs LoRA works with the optimum model implementation only, and model_impl is "
        "vllm. Remove enable_lora, or serve without speculation and with model_impl = transformers."
    ]
    assert config.read({**parameters, "model_impl": "transformers"}, tmp_path).engine_flags["enable_lora"] == "true"


def test_a_chat_template_is_a_text_or_a_file_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("{{ messages }}", encoding="utf-8")
    for value in ("{{ messages }}", "chat.jinja", "./chat.jinja", str(tmp_path / "chat.jinja")):
        settings = config.read({"model": "m/m", "serving.chat_template": value}, tmp_path)
        assert settings.serving.chat_template == "{{ messages }}"
    (fault,) = faults({"model": "m/m", "serving.chat_template": "nowhere.jinja"}, tmp_path)
    assert fault.startswith("serving.chat_template = 'nowhere.jinja': can't be read ([Errno 2] ")
    assert fault.endswith("relative to config.pbtxt, or give the template's text.")


def test_template_kwargs_are_a_json_object(tmp_path: Path) -> None:
    key = "serving.default_chat_template_kwargs"
    settings = config.read({"model": "m/m", key: '{"enable_thinking": false}'}, tmp_path)
    assert settings.serving.default_chat_template_kwargs == {"enable_thinking": False}
    for value in ("[]", "{", "{'a': 1}"):
        assert faults({"model": "m/m", key: value}, tmp_path) == [
            f"{key} = {value!r}: must be a JSON object. Correct the value or remove the parameter."
        ]


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        (
            {"model": "/" + "a" * 5000},
            f"model = '/{'a' * 77}…: not a path that can be looked up (File name too long). Correct the path.",
        ),
        (
            {"model": "./a\0b"},
            "model = './a\\x00b': not a path that can be looked up (it holds a NUL). Correct the path.",
        ),
        (
            {"model": "  "},
            'model: the checkpoint to serve is missing. Set the parameter "model" to a folder or a hub id.',
        ),
        (
            {"model": "a/b", "env.A": "1\0"},
            "env.A = '1\\x00': an environment variable can't hold a NUL. Correct the value.",
        ),
        (
            {"model": "a/b", "serving.chat_template": "a\0b"},
            "serving.chat_template = 'a\\x00b': can't be read (it holds a NUL). "
            "Name a file that the server can read, relative to config.pbtxt, or give the template's text.",
        ),
        (
            {"model": "a/b", "speculative_config": "[" * 300 + "]" * 300},
            f"speculative_config = '{'[' * 78}…: not valid JSON (nested more than 256 deep). "
            "Mend it, or use flat keys such as speculative_config.method.",
        ),
        (
            {"model": "a/b", "enable_lora": "true", "serving.lora.x": "/"},
            "serving.lora.x = '/': / holds no adapter_config.json. Name the folder of an adapter.",
        ),
    ],
)
def test_a_value_that_cannot_even_be_looked_at_is_a_fault_like_any_other(
    parameters: dict[str, str], fault: str, tmp_path: Path
) -> None:
    assert faults(parameters, tmp_path) == [fault]


def test_an_option_is_given_whole_or_by_its_keys_at_every_depth(tmp_path: Path) -> None:
    flags = {"model": "a/b", "additional_config.a": "1", "additional_config.a.b.c": "2"}
    assert faults(flags, tmp_path) == [
        "additional_config.a = '1': given both as one JSON and as additional_config.a.…. Use one of the two."
    ]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ('{"tokenize": true}', "tokenize is the backend's own and can't be set"),
        ('{"add_generation_prompt": 1}', "add_generation_prompt must be true or false, and is 1"),
    ],
)
def test_the_operators_template_arguments_meet_the_clients_rule(given: str, rule: str, tmp_path: Path) -> None:
    key = "serving.default_chat_template_kwargs"
    assert faults({"model": "a/b", key: given}, tmp_path) == [f"{key} = {given!r}: {rule}. Correct the object."]


@pytest.mark.parametrize("given", ["vlllm", "optimum"])
def test_an_implementation_that_vllm_would_pass_over_is_refused(given: str, tmp_path: Path) -> None:
    assert faults({"model": "a/b", "serving.platform": "cpu", "model_impl": given}, tmp_path) == [
        f"model_impl = {given!r}: vLLM has no such model implementation, and would take another without a word. "
        "Set it to one of auto, vllm, transformers, terratorch."
    ]


def test_a_variable_without_its_prefix_is_a_fault_and_other_capitals_are_said_to_be_tritons(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.read({"model": "org/name", "VLLM_CACHE_ROOT": "/cache"}, tmp_path)
    assert str(caught.value).endswith(
        "VLLM_CACHE_ROOT = '/cache': the name of an environment variable, and as a parameter it would have no effect. "
        "Write env.VLLM_CACHE_ROOT."
    )
    settings = config.read({"model": "org/name", "MAX_MODEL_LEN": "9", "EXECUTION_ENV_PATH": "/opt/env"}, tmp_path)
    (note,) = settings.notes
    assert note.startswith("MAX_MODEL_LEN is in capitals and so left to Triton")
