"""The sampler's operators."""

import torch


def register():
    """Defines the operators with a CPU kernel and a shape-only one for tracing."""
    _define("argmax", "(Tensor logits) -> Tensor", _argmax, _one_each)
    schema = "(Tensor probs, Tensor? top_k, Tensor? top_p) -> Tensor"
    _define("top_k_top_p", schema, _top_k_top_p, lambda probs, top_k, top_p: _one_each(probs))
    schema = "(Tensor drafts, Tensor probs, Tensor ends, Tensor? top_k, Tensor? top_p) -> (Tensor, Tensor)"
    _define("rejection_sample", schema, _rejection_sample, _rejection_sample_shapes)


def _define(name, schema, kernel, shapes):
    operator = f"rbln::{name}"
    torch.library.define(operator, schema)
    torch.library.impl(operator, "CPU", kernel)
    torch.library.register_fake(operator, shapes)


def _one_each(rows):
    return rows.new_empty(rows.shape[0], dtype=torch.int32)


def _argmax(logits):
    """[requests, vocabulary] -> [requests], int32."""
    return logits.argmax(-1).int()


def _top_k_top_p(probs, top_k, top_p):
    """One token drawn for each row of [requests, vocabulary]."""
    return torch.multinomial(_filtered(probs, top_k, top_p), 1).reshape(-1).int()


def _filtered(probs, top_k, top_p):
    """The probabilities with what top_k and top_p exclude set to zero, and the rest brought to a sum of one."""
    ordered, order = probs.float().sort(dim=-1, descending=True, stable=True)
    excluded = torch.zeros_like(ordered, dtype=torch.bool)
    if top_k is not None:
        excluded |= torch.arange(ordered.shape[-1])[None, :] >= top_k[:, None]
    if top_p is not None:
        excluded |= ordered.cumsum(-1) - ordered >= top_p[:, None]
    ordered = ordered.masked_fill(excluded, 0.0)
    kept = torch.zeros_like(ordered).scatter_(-1, order, ordered)
    return kept / kept.sum(-1, keepdim=True)


def _rejection_sample(drafts, probs, ends, top_k, top_p):
    """How many of each request's drafts the target accepts, and the token that it puts in the place of the first other.

    A draft is a point, so it is accepted with the target's own probability of it, and the token in its place is drawn
    from the target without it: what comes out has the target's distribution.

    Args:
        drafts: [requests * K] packed: all of the first request, then of the next; what lies beyond is padding.
        probs: [requests * K, vocabulary], the target's at the same places.
        ends: [requests], the running sum of the requests' numbers of drafts.
        top_k, top_p: [requests]

    Returns:
        The recovered tokens [requests, K], zero but at the place of the first rejected draft, and the numbers of
        accepted drafts [requests]; both int32.
    """
    requests = ends.numel()
    recovered = torch.zeros(requests, drafts.numel() // requests, dtype=torch.int32)
    accepted = torch.zeros(requests, dtype=torch.int32)
    begin = 0
    for request, end in enumerate(ends.tolist()):
        for place, index in enumerate(range(begin, end)):
            row = _filtered(probs[index : index + 1], _of(top_k, request), _of(top_p, request))[0]
            if torch.rand(()) < row[drafts[index]]:
                accepted[request] += 1
                continue
            row[drafts[index]] = 0.0
            recovered[request, place] = torch.multinomial(row, 1)
            break
        begin = end
    return recovered, accepted


def _of(values, request):
    return None if values is None else values[request : request + 1]


def _rejection_sample_shapes(drafts, probs, ends, top_k, top_p):
    requests = ends.shape[0]
    per_request = drafts.new_empty((requests, drafts.shape[0] // requests), dtype=torch.int32)
    return per_request, ends.new_empty(requests, dtype=torch.int32)
