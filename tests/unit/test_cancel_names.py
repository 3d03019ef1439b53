"""What a name cancels, and what it doesn't."""

from __future__ import annotations

import pytest

from rbln_vllm_backend.cancel_names import CancelNames
from rbln_vllm_backend.errors import InvalidRequest, NotFound, Unsupported


def test_a_clients_id_names_every_open_request_that_has_it() -> None:
    names = CancelNames(clients_may=True)
    names.add("a", None, "1")
    names.add("b", None, "1")
    names.add("c", None, "2")
    assert sorted(names.find("1")) == ["a", "b"]
    names.remove("a", None, "1")
    assert names.find("1") == ["b"]
    names.remove("b", None, "1")
    with pytest.raises(NotFound, match="cancel_request_id = '1': no open request of this instance has that id"):
        names.find("1")


def test_without_permission_only_private_ids_are_found() -> None:
    names = CancelNames(clients_may=False)
    names.add("a", "secret", "1")
    assert names.find("secret") == ["a"]
    for name in ("1", "other"):
        with pytest.raises(Unsupported, match="turns it on"):
            names.find(name)


def test_a_private_id_that_somebody_repeats_stays_the_first_ones() -> None:
    names = CancelNames(clients_may=True)
    names.add("a", "secret", "")
    names.add("b", "secret", "")
    assert names.find("secret") == ["a"]
    names.remove("b", "secret", "")
    assert names.find("secret") == ["a"]


def test_nothing_is_kept_of_requests_that_ended() -> None:
    names = CancelNames(clients_may=True)
    for number in range(100):
        names.add(f"{number}", f"private {number}", f"client {number % 3}")
    for number in range(100):
        names.remove(f"{number}", f"private {number}", f"client {number % 3}")
    assert (names._private, names._clients) == ({}, {})


def test_an_empty_name_names_nothing() -> None:
    names = CancelNames(clients_may=True)
    names.add("a", "", "")
    with pytest.raises(InvalidRequest, match="cancel_request_id: the request id is empty"):
        names.find("")
