"""What can fail, by who has to act.

    operator   config.pbtxt ──ConfigError──> the load fails, nothing was started
    client     request ──InvalidRequest, Unsupported, NotFound──> one error reply
    client     cancel, deadline ──Cancelled, DeadlineExceeded──> one error reply
    server     full, draining, engine down ──Unavailable, EngineDown──> one error reply, try again later
    us         anything else ──> one fixed sentence to the client, the traceback to the log

``code`` is the name of Triton's error code, as text: this module knows the server's words, not its modules.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rbln_vllm_backend.masking import masked

_REPR_LIMIT = 80


def shown(value: object) -> str:
    """The value as it stands in a message: its repr, cut to 80 characters."""
    text = repr(_beginning(value))
    return text if len(text) <= _REPR_LIMIT else text[: _REPR_LIMIT - 1] + "…"


def _beginning(value: object) -> object:
    """So much of a text, list or object that its repr is too long, if the whole one's is: megabytes take a second."""
    if isinstance(value, (str, bytes, list)):
        return value[:_REPR_LIMIT]
    if isinstance(value, dict):
        return dict(itertools.islice(value.items(), _REPR_LIMIT))
    return value


class BackendError(Exception):
    """A failure with a message that is meant for the one who has to act."""

    code = "INTERNAL"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in a configuration: key, value, rule, remedy."""

    key: str
    rule: str
    remedy: str
    value: object = None

    def __str__(self) -> str:
        subject = self.key if self.value is None else f"{self.key} = {shown(masked(self.key, self.value))}"
        return f"{subject}: {self.rule}. {self.remedy}."


class ConfigError(BackendError):
    """The operator's configuration can't be served; ``faults`` holds every one that was found."""

    code = "INVALID_ARG"

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        count = f"{len(self.faults)} faults" if len(self.faults) > 1 else "1 fault"
        super().__init__("\n".join([f"{count} in config.pbtxt:", *(f"  - {fault}" for fault in self.faults)]))


class EngineStartError(BackendError):
    """The engine didn't come up; the message says what to look at."""


class RequestError(BackendError):
    """A failure of one request; its neighbours go on."""


class InvalidRequest(RequestError):
    """The client sent something that no retry can mend."""

    code = "INVALID_ARG"

    @classmethod
    def about(cls, name: str, value: object, rule: str) -> InvalidRequest:
        """The message as the protocol words it: the field's name, its value (cut), the rule."""
        return cls(f"{name} = {shown(value)}: {rule}.")


class Unsupported(RequestError):
    """Not on this platform or with this checkpoint."""

    code = "UNSUPPORTED"


class NotFound(RequestError):
    """A name that the server doesn't know."""

    code = "NOT_FOUND"


class Unavailable(RequestError):
    """Full or going away: the same request may succeed later or elsewhere."""

    code = "UNAVAILABLE"


class EngineDown(Unavailable):
    """The engine died; its open requests end with this."""


class DeadlineExceeded(Unavailable):
    """The request's time ran out."""


class Cancelled(RequestError):
    """The client went away or asked to stop."""

    code = "CANCELLED"


def as_request_error(error: BaseException, request_id: str) -> RequestError:
    """What the client gets for an error: known ones keep their text, others one fixed sentence."""
    if isinstance(error, RequestError):
        return error
    return RequestError(f"The request failed inside the backend; the server's log has the cause under {request_id}.")
