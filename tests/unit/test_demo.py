"""The demo, where it can't have a server of its own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rbln_vllm_backend import demo
from rbln_vllm_backend.embedded_server import EmbeddedServerError


def test_a_server_that_listens_already_is_not_taken_for_the_demos_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(demo, "_HTTP", port)
        with pytest.raises(EmbeddedServerError) as caught:
            demo.run(str(tmp_path))
    assert str(caught.value) == f"Port {port} can't be used: Address already in use."
