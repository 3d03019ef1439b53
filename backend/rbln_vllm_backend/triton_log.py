"""Our log lines, handed to Triton's own log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue

import triton_python_backend_utils as pb_utils

from rbln_vllm_backend.errors import BackendError


class TritonLog(logging.Handler):
    """Writes each record with the model's name to the server's log, at the level that fits."""

    def __init__(self, model_name: str) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(f"[{model_name}] %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler.emit``."""
        logger = pb_utils.Logger
        write = (
            logger.log_error
            if record.levelno >= logging.ERROR
            else logger.log_warn
            if record.levelno >= logging.WARNING
            else logger.log_info
            if record.levelno >= logging.INFO
            else logger.log_verbose
        )
        write(self.format(record))


@contextmanager
def loading(model_name: str) -> Iterator[QueueListener]:
    """The log of a model while it loads. It goes on after that, until stopped, unless the load fails.

    Raises TritonModelException, the server's own, for a BackendError.
    """
    lines = _install(model_name)
    try:
        yield lines
    except BackendError as error:
        lines.stop()
        raise pb_utils.TritonModelException(str(error)) from error
    except BaseException:
        lines.stop()
        raise


def _install(model_name: str) -> QueueListener:
    """Sends this package's log to the server; debug lines appear at the server's verbose level.

    A line is an exchange with the server, so a thread of its own has it: the event loop only queues. ``stop`` of what
    is returned ends the thread when every line so far is written.
    """
    lines: SimpleQueue[logging.LogRecord] = SimpleQueue()
    listener = QueueListener(lines, TritonLog(model_name))
    listener.start()
    package = logging.getLogger("rbln_vllm_backend")
    package.handlers = [QueueHandler(lines)]
    package.setLevel(logging.DEBUG)
    package.propagate = False
    return listener
