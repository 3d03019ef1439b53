"""The part of Triton's module that the backend uses, with the same names; put on the path by the tests that need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar


class TritonModelException(Exception):
    pass


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message, self._code = message, code

    def code(self) -> int:
        return self._code

    def message(self) -> str:
        return self._message


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        if isinstance(self._array, Exception):
            raise self._array
        return self._array


class InferenceResponse:
    def __init__(self, output_tensors: list[Tensor] | None = None, error: TritonError | None = None) -> None:
        self._tensors, self._error = output_tensors or [], error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class ResponseSender:
    """Records (response, flags)."""

    def __init__(self) -> None:
        self.sent: list[tuple[InferenceResponse, int]] = []
        self.cancelled = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        return self.cancelled


class InferenceTrace:
    """The server's span; its context is None unless the server traces to OpenTelemetry."""

    def __init__(self, context: str | None) -> None:
        self._context = context

    def get_context(self) -> str | None:
        return self._context


class InferenceRequest:
    """What ``execute`` is given (``parameters`` is JSON text), and what a call of another model is made of.

    ``answers`` has what a call gets that isn't decoupled; ``target`` gives a decoupled one its responses.
    """

    answers: ClassVar[dict[tuple[str, int], InferenceResponse | Exception]] = {}
    target: Callable[[InferenceRequest], Iterable[InferenceResponse]]

    def __init__(
        self,
        inputs: list[Tensor],
        parameters: Any = "",
        request_id: str = "",
        timeout: int = 0,
        model_name: str = "",
        model_version: int = -1,
        requested_output_names: Sequence[str] = (),
        trace: object = None,
    ) -> None:
        self._inputs, self._parameters, self._request_id = inputs, parameters, request_id
        self.model_name, self._model_version = model_name, model_version
        self._timeout_us, self._trace = timeout, trace
        self._requested = list(requested_output_names)
        self.sender = ResponseSender()

    def exec(self, decoupled: bool = False) -> Any:
        if decoupled:
            assert all(isinstance(value, (bool, int, str)) for value in self._parameters.values())
            return type(self).target(self)
        answer = self.answers[self.model_name, self._model_version]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def parameters(self) -> Any:
        return self._parameters

    def request_id(self) -> str:
        return self._request_id

    def requested_output_names(self) -> list[str]:
        return self._requested

    def timeout(self) -> int:
        return self._timeout_us

    def trace(self) -> object:
        return self._trace

    def get_response_sender(self) -> ResponseSender:
        return self.sender


class Logger:
    @staticmethod
    def log_info(message: str) -> None: ...

    @staticmethod
    def log_warn(message: str) -> None: ...

    @staticmethod
    def log_error(message: str) -> None: ...

    @staticmethod
    def log_verbose(message: str) -> None: ...
