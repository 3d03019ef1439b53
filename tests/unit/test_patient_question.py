"""A lost question counts as no, and holds nobody up."""

from __future__ import annotations

import threading
import time

import pytest

from rbln_vllm_backend.patient_question import PatientQuestion


@pytest.mark.parametrize("answer", [True, False])
def test_an_answer_is_handed_on(answer: bool) -> None:
    assert PatientQuestion(lambda: answer)() is answer


def test_a_question_that_is_lost_counts_as_no_and_is_not_put_again() -> None:
    asked, answered = [], threading.Event()

    def question() -> bool:
        asked.append(True)
        return answered.wait(60)

    ask = PatientQuestion(question, patience_s=0.05)
    began = time.monotonic()
    assert [ask(), ask()] == [False, False]
    assert time.monotonic() - began < 5
    assert len(asked) == 1
    answered.set()
    deadline = time.monotonic() + 5
    while not ask():
        assert time.monotonic() < deadline
