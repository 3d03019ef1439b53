"""Faults on demand: they show that the tests which compare tokens would see them.

The variable SIMULATED_NPU_FAULT names one of

    ``drop_kv_writes``    new keys and values never reach the cache
    ``wrong_verify_row``  when drafts are verified, the first request's row of the block table names the null block
    ``wrong_draft_row``   the same in the draft model's own steps
"""

import os

from rebel import _memory


def keeps_kv():
    """Whether the cache takes what is written."""
    return _fault() != "drop_kv_writes"


def as_read(block_tables, kv_cache, new_tokens):
    """The block tables as the kernel reads them: [requests, blocks] for a decode, [blocks] for a prefill."""
    if block_tables.dim() == 1 or not _is_struck(kv_cache, new_tokens):
        return block_tables
    wrong = block_tables.clone()
    wrong[0] = 0
    return wrong


def _is_struck(kv_cache, new_tokens):
    if _fault() == "wrong_verify_row":
        return new_tokens > 1 and not _memory.is_last(kv_cache)
    return _fault() == "wrong_draft_row" and _memory.is_last(kv_cache)


def _fault():
    """Asked anew each time: an engine's process may be a fork of one that has imported this before."""
    return os.environ.get("SIMULATED_NPU_FAULT", "")
