"""The parameters of the unary model: all start with ``serving.``, since the engine is another model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rbln_vllm_backend import config, serving_options
from rbln_vllm_backend.errors import ConfigError, Fault
from rbln_vllm_backend.serving_options import option
from rbln_vllm_backend.values import Integer, Number, Text


@dataclass(frozen=True)
class UnaryOptions:
    """How unary requests are handed on; each field is the parameter ``serving.<field>``."""

    target_model: str = option("llm", Text(), "the decoupled model that answers; it may be loaded later")
    max_inflight_requests: int = option(
        1024, Integer(minimum=1, maximum=32768), "requests accepted at once, a thread for each"
    )
    cancel_poll_interval_s: float = option(
        0.1, Number(minimum=0.001, maximum=60), "how often cancelled requests are looked for"
    )
    drain_timeout_s: float = option(
        20.0, Number(minimum=0), "how long open requests may go on after an unload or a shutdown began"
    )


def read(parameters: Mapping[str, str]) -> UnaryOptions:
    """The options from the parameters of config.pbtxt.

    Raises:
        ConfigError: with everything that is wrong.
    """
    ours = {key: text for key, text in parameters.items() if not config.is_tritons_own(key)}
    foreign = [
        Fault(key, "the unary model takes only serving.… parameters", "Set it for the model that answers", text)
        for key, text in ours.items()
        if not key.startswith(serving_options.PREFIX)
    ]
    mine = {key: text for key, text in ours.items() if key.startswith(serving_options.PREFIX)}
    chosen, faults = serving_options.read_values(serving_options.rules_of(UnaryOptions), mine)
    if foreign or faults:
        raise ConfigError([*foreign, *faults])
    return UnaryOptions(**chosen)
