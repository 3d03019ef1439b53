"""A model folder's config.pbtxt, outside of a server: read, completed, explained."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rbln_vllm_backend import adapters, config, fixed_config, npu_groups, rbln_options, unary_options, wire
from rbln_vllm_backend.config import BackendConfig
from rbln_vllm_backend.errors import ConfigError, Fault
from rbln_vllm_backend.masking import masked
from rbln_vllm_backend.unary_options import UnaryOptions

_FILE = "config.pbtxt"
_PACKAGE = "rbln_vllm_backend"


class ModelFolder:
    """The folder of one model in a repository, or its config.pbtxt itself."""

    def __init__(self, path: Path) -> None:
        self._file = path / _FILE if path.is_dir() else path
        self._folder = self._file.parent.resolve()

    def read(self) -> Any:
        """The file as Triton's ``ModelConfig`` message; raises ConfigError with the place of a mistake."""
        from google.protobuf import text_format
        from tritonclient.grpc import model_config_pb2

        try:
            text = self._file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fault = Fault(str(self._file), f"can't be read ({error})", "Name a model folder with a config.pbtxt")
            raise ConfigError([fault]) from error
        try:
            message = text_format.Parse(text, model_config_pb2.ModelConfig())
        except text_format.ParseError as error:
            raise ConfigError(
                [Fault(str(self._file), f"not a model configuration ({error})", "Mend the file")]
            ) from error
        programs = self._programs()
        if message.platform or (programs and not any(_PACKAGE in program for program in programs)):
            remedy = f"Name the folder of a model whose model.py imports {_PACKAGE}"
            raise ConfigError([Fault(str(self._file), "not a model of this backend", remedy)])
        return message

    def is_unary(self) -> bool:
        """Whether the folder's model.py is that of the unary model."""
        return any("triton_unary_model" in program for program in self._programs())

    def _programs(self) -> list[str]:
        """What each version's model.py holds; nothing where only the configuration is at hand."""
        return [file.read_text(errors="replace") for file in self._folder.glob("*/model.py")]

    def checked(self) -> BackendConfig | UnaryOptions:
        """What the model would be loaded with, whichever of the two it is; raises ConfigError with every fault."""
        return self.check_unary() if self.is_unary() else self.check()

    def check_unary(self) -> UnaryOptions:
        """The unary model's options; raises ConfigError with every fault."""
        message = self.read()
        faults = self._contradictions(message, streams=False)
        try:
            options = unary_options.read({key: value.string_value for key, value in message.parameters.items()})
        except ConfigError as error:
            raise ConfigError([*error.faults, *faults]) from error
        if faults:
            raise ConfigError(faults)
        return options

    def check(self) -> BackendConfig:
        """Everything that can be known without an engine, vLLM's own parser included where vLLM is installed.

        Raises:
            ConfigError: with every fault.
        """
        message = self.read()
        parameters = {key: value.string_value for key, value in message.parameters.items()}
        if self.is_unary():
            remedy = "Name the folder of the model that serving.target_model names"
            raise ConfigError([Fault(str(self._file), "the unary model has no engine", remedy)])
        try:
            settings, faults = config.read(parameters, self._folder, _instance_groups(message)), []
        except ConfigError as error:
            settings, faults = None, list(error.faults)
        faults += self._contradictions(message, streams=True)
        if has_vllm():
            faults += _parser_faults(parameters)
            faults += _template_faults(settings)
        if settings is None or faults:
            raise ConfigError(faults)
        return settings

    def full_config(self) -> str:
        """The complete config.pbtxt, for a server that runs with auto-complete off.

        Raises:
            ConfigError: as ``checked``.
        """
        from google.protobuf import text_format

        message, streams = self.read(), not self.is_unary()
        self.checked()
        message.name = message.name or self._folder.name
        message.backend = message.backend or "python"
        message.model_transaction_policy.decoupled = streams
        _complete(message, "input", wire.INPUTS, optional=True)
        _complete(message, "output", wire.OUTPUTS if streams else wire.UNARY_OUTPUTS, optional=False)
        return str(text_format.MessageToString(message))

    def _contradictions(self, message: Any, streams: bool) -> list[Fault]:
        """What the server or the load would refuse besides parameters."""
        policy = message.model_transaction_policy.decoupled if message.HasField("model_transaction_policy") else None
        faults = fixed_config.contradictions(message.max_batch_size, policy, streams)
        if message.backend not in ("", "python"):
            faults.append(
                Fault("backend", "the model is one of Triton's Python backend", 'Set it to "python"', message.backend)
            )
        if self._programs() and message.name not in ("", self._folder.name):
            rule = f"Triton wants the name of the folder, which is {self._folder.name}"
            faults.append(Fault("name", rule, "Remove it, or correct it", message.name))
        return faults


def _instance_groups(message: Any) -> list[Any]:
    from google.protobuf import json_format

    document = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return npu_groups.instance_groups_of(document)


def has_vllm() -> bool:
    """Whether vLLM is installed here, so that its parser can check the engine flags."""
    return importlib.util.find_spec("vllm") is not None


def has_rbln() -> bool:
    """Whether the RBLN plugin is installed here, so that vLLM's parser knows its flags."""
    return importlib.util.find_spec("vllm_rbln") is not None


def report(settings: BackendConfig | UnaryOptions) -> Iterator[str]:
    """What the engine, or the unary model, would get, a line at a time."""
    if isinstance(settings, UnaryOptions):
        yield "serving options"
        yield from _rows({f"serving.{name}": value for name, value in vars(settings).items()})
        return
    yield f"platform: {settings.platform}"
    yield "engine flags"
    yield from _rows(settings.engine_flags)
    if not has_vllm():
        yield "  (not checked: vLLM isn't installed here, and only its parser knows the flags)"
    yield "speculation"
    yield from _rows(settings.speculation.options if settings.speculation else {})
    yield "serving options"
    options = {f"serving.{name}": value for name, value in vars(settings.serving).items()}
    yield from _rows(options | {adapters.PREFIX + name: path for name, path in settings.adapters.items()})
    yield "environment"
    yield from _rows(settings.environment)
    for note in settings.notes:
        yield f"note: {note}"


def _rows(values: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(values):
        yield f"  {name} = {masked(name, _spelled(values[name]))}"
    if not values:
        yield "  none"


def _spelled(value: object) -> str:
    """The value as config.pbtxt would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "(not set)" if value is None else str(value)


def _parser_faults(parameters: dict[str, str]) -> list[Fault]:
    from rbln_vllm_backend import vllm_flags

    logging.getLogger("vllm").setLevel(logging.ERROR)  # it greets, and the report is read by people
    try:
        flags = config.engine_flags_of(parameters)
        if not has_rbln():  # config.read has checked the plugin's own flags by its table
            flags = {key: text for key, text in flags.items() if not rbln_options.is_option(key)}
        vllm_flags.parse(flags, None)
    except ConfigError as error:
        return list(error.faults)
    return []


def _template_faults(settings: BackendConfig | None) -> list[Fault]:
    if settings is None or settings.serving.chat_template is None:
        return []
    from rbln_vllm_backend import vllm_prompts

    try:
        vllm_prompts.require_template(settings.serving.chat_template)
    except ConfigError as error:
        return list(error.faults)
    return []


def _complete(message: Any, side: str, tensors: tuple[wire.Tensor, ...], optional: bool) -> None:
    entries = getattr(message, side)
    present = {entry.name for entry in entries}
    for tensor in tensors:
        if tensor.name not in present:
            data_type = type(message).DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_name[tensor.data_type]
            entry = entries.add(name=tensor.name, data_type=data_type.number, dims=tensor.dims)
            if optional:
                entry.optional = True
