"""What the unary model and the model behind it say to each other, beyond the wire protocol.

The unary model asks by BLS, which in Triton 24.10 keeps one of the server's threads until the first response, loses an
error that comes after it (and the caller waits for ever), takes no float parameter, and can't cancel. So a call carries
two request parameters, and is answered in a way of its own: at once an empty response, at the end the answer, or the
output ERROR with an error's code and message.

    CALL        the call's id
    PARAMETERS  the client's request parameters, as the JSON text that Triton made of them

The id is random, known to nobody else, and cancels the call (as ``cancel_request_id``). A client that sends the
parameters itself only changes how its own request is answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rbln_vllm_backend import errors
from rbln_vllm_backend.errors import InvalidRequest, RequestError

CALL = "rbln_vllm_unary_call"
PARAMETERS = "rbln_vllm_unary_parameters"
ERROR = "call_error"

_BY_CODE: dict[str, type[RequestError]] = {
    kind.code: kind
    for kind in (
        errors.RequestError,
        errors.InvalidRequest,
        errors.Unsupported,
        errors.NotFound,
        errors.Unavailable,
        errors.Cancelled,
    )
}


@dataclass(frozen=True)
class Call:
    """Who asks, and with which request parameters. ``id`` is None unless the unary model asks."""

    id: str | None
    parameters: Mapping[str, object]


def parameters_of(call_id: str, client_parameters: str) -> dict[str, str]:
    """The request parameters of a call; ``client_parameters`` is Triton's JSON text, or empty."""
    return {CALL: call_id, PARAMETERS: client_parameters or "{}"}


def read(parameters: Mapping[str, object]) -> Call:
    """Tells a call of the unary model from a client's own request. Never raises.

    A client's parameter that isn't as the unary model writes it stays what it is: an unknown name, refused as such.
    """
    call_id, text = parameters.get(CALL), parameters.get(PARAMETERS)
    if not isinstance(call_id, str) or not isinstance(text, str):
        return Call(None, parameters)
    try:
        # Python's reader, as Triton writes NaN and Infinity: the parameter's own rule refuses them by name.
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return Call(None, parameters)
    return Call(call_id, inner) if isinstance(inner, dict) else Call(None, parameters)


def require_unary(stream: bool) -> None:
    """Raises InvalidRequest if a call asks for a stream."""
    if stream:
        raise InvalidRequest.about("stream", True, "this model answers once; the decoupled one behind it streams")


def told(error: RequestError) -> str:
    """An error as the text of the output ERROR: its code, then its message."""
    return f"{error.code}: {error}"


def error_from(text: str) -> RequestError:
    """The error that ``told`` wrote, with its code."""
    code, _, message = text.partition(": ")
    return _BY_CODE[code](message)
