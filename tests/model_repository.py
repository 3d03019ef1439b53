"""Model repositories for tests: folders with a config.pbtxt of given parameters and the committed model.py."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODEL_FILES = {name: ROOT / "model_repository" / name / "1" / "model.py" for name in ("llm", "llm_unary")}
MODEL_FILES["ticking"] = ROOT / "tests" / "server" / "ticking" / "model.py"

NGRAM = {
    "speculative_config.method": "ngram",
    "speculative_config.num_speculative_tokens": "4",
    "speculative_config.prompt_lookup_min": "1",
    "speculative_config.prompt_lookup_max": "3",
}


def small_engine(checkpoint: Path, **more: str) -> dict[str, str]:
    """Parameters of an engine that is ready soon and needs little memory."""
    return {
        "model": str(checkpoint),
        "dtype": "float32",
        "max_model_len": "512",
        "max_num_seqs": "32",
        "enforce_eager": "true",
        "kv_cache_memory_bytes": str(128 * 2**20),  # 262,144 tokens of the tiny checkpoint
        "env.TORCHDYNAMO_DISABLE": "1",
        **more,
    }


def write_model(
    repository: Path, name: str, parameters: Mapping[str, str], further: str = "", kind: str = "llm"
) -> Path:
    """One model folder, its model.py that of a ``kind``; ``further`` is text of config.pbtxt beyond the parameters."""
    folder = repository / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    shutil.copy(MODEL_FILES[kind], folder / "1" / "model.py")
    (folder / "config.pbtxt").write_text(config_text(name, parameters) + further)
    return folder


def write_ticking_model(repository: Path, name: str, **more: str) -> Path:
    """A folder of the backend's own model around an engine that ticks: a letter every 4 ms, for as long as asked."""
    parameters = {"model": "an/engine-without-one", "serving.warmup": "false", **more}
    return write_model(repository, name, parameters, kind="ticking")


def write_unary_model(repository: Path, name: str, target: str, **more: str) -> Path:
    """A folder of the unary model in front of ``target``."""
    return write_model(repository, name, {"serving.target_model": target, **more}, kind="llm_unary")


def copy_example(repository: Path, name: str) -> None:
    """One of the examples that are model folders."""
    shutil.copytree(ROOT / "examples" / name, repository / name)


def config_text(name: str, parameters: Mapping[str, str]) -> str:
    """A config.pbtxt with these parameters."""
    lines = [f'name: "{name}"', 'backend: "python"']
    for key, value in parameters.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'parameters {{ key: "{key}" value {{ string_value: "{quoted}" }} }}')
    return "\n".join(lines) + "\n"
