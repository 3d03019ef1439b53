"""Whether a draft was made for its target, told from the two config.json files before any weights are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rbln_vllm_backend import strict_json
from rbln_vllm_backend.errors import Fault

# Heads that read the target's hidden states must be as wide as these.
_READS_HIDDEN_STATES = frozenset({"eagle", "eagle3", "medusa"})


def misfits(options: Mapping[str, Any], key: str, target: str) -> list[Fault]:
    """What keeps the draft from fitting; nothing when either isn't a local checkpoint.

    Args:
        options: the checked ``speculative_config``; its ``model`` is the draft.
        key: the parameter that names the draft.
        target: a folder, or a hub id, of which nothing is known here.
    """
    draft = options["model"]
    ours, theirs = _config(draft), _config(target)
    if ours is None or theirs is None:
        return []
    compared: list[tuple[str, Any, Any]] = []
    if not options.get("use_heterogeneous_vocab"):
        compared.append(("vocab_size", ours.get("vocab_size"), theirs.get("vocab_size")))
    if options["method"] in _READS_HIDDEN_STATES:
        # Some EAGLE3 heads are narrower than what they read, and say so.
        width = ours.get("target_hidden_size", ours.get("hidden_size"))
        compared.append(("hidden_size", width, theirs.get("hidden_size")))
    return _too_few_heads(options, ours) + [
        Fault(
            key,
            f"the draft's {name} is {mine}, and that of the target {target} is {other}",
            "Name a draft that was made for this target",
            draft,
        )
        for name, mine, other in compared
        if None not in (mine, other) and mine != other
    ]


def _too_few_heads(options: Mapping[str, Any], ours: Mapping[str, Any]) -> list[Fault]:
    """vLLM draws up the heads that are missing at random, and says nothing."""
    heads, wanted = ours.get("num_heads"), options["num_speculative_tokens"]
    if options["method"] != "medusa" or not isinstance(heads, int) or wanted <= heads:
        return []
    rule = f"the Medusa checkpoint has {heads} heads, and each drafts one token"
    return [Fault("speculative_config.num_speculative_tokens", rule, f"Set it to {heads} at most", wanted)]


def _config(folder: str) -> dict[str, Any] | None:
    try:
        document = strict_json.decode((Path(folder) / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    # A multimodal checkpoint keeps its language model's numbers one level down.
    text_config = document.get("text_config")
    return text_config if isinstance(text_config, dict) else document
