"""Late search by token vectors as a training term: the scores of `sidr_rag.rerank.maxsim`, with a gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from sidr_rag.rerank.maxsim import shares_of
from sidr_rag.train.model import Encoded, Pack, in_batch_order

_LEAST = -2.0  # below every product of vectors of length 1


def maxsim(
    queries: Encoded, passages: Encoded, counts: Sequence[NDArray[np.float32]], dtype: torch.dtype = torch.float32
) -> Tensor:
    """What late search scores, f32[queries, passages]: see `sidr_rag.rerank.maxsim`.

    A passage's token vectors are signs; the gradient passes to the states as if they had not been rounded.

    Args:
        queries: read, special tokens first and last.
        passages: likewise.
        counts: what each of a query's tokens counts, f32[tokens] without the special ones.
        dtype: of the products.
    """
    device = passages[0].hidden.device
    inner = [_inner(pack) for pack in queries]
    asked = F.normalize(torch.cat([pack.hidden[mask] for pack, mask in zip(queries, inner, strict=True)]), dim=-1)
    places = torch.cat([pack.places.repeat_interleave(m.sum(dim=1)) for pack, m in zip(queries, inner, strict=True)])
    order = torch.cat([pack.places for pack in queries]).tolist()
    shares = np.concatenate([shares_of(counts[place].astype(np.float64)) for place in order])
    weights = torch.from_numpy(shares.astype(np.float32)).to(device)
    share = torch.zeros((len(order), len(asked)), device=device)
    share[places, torch.arange(len(asked), device=device)] = weights
    best = []
    for pack in passages:
        smooth = F.normalize(pack.hidden, dim=-1)
        signs = torch.where(pack.hidden >= 0, 1.0, -1.0) * pack.hidden.shape[-1] ** -0.5
        vectors = smooth + (signs - smooth).detach()
        mask = _inner(pack)
        products = (vectors.to(dtype) @ asked.to(dtype).t()).masked_fill(~mask[:, :, None], _LEAST)
        found = products.amax(dim=1).float()
        best.append(torch.where(mask.any(dim=1)[:, None], found, 0.0) @ share.t())
    return in_batch_order(best, passages).t()


def _inner(pack: Pack) -> Tensor:
    """bool[n, tokens]: a sequence's tokens without the first and the last."""
    n, tokens, _ = pack.hidden.shape
    places = torch.arange(tokens, device=pack.hidden.device)
    lengths = torch.full((n,), tokens, device=places.device) if pack.real is None else pack.real.sum(dim=1)
    inner: Tensor = (places > 0) & (places < lengths[:, None] - 1)
    return inner
