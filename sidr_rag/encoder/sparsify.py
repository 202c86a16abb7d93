"""From pooled vocabulary logits to sparse vectors: which dimensions stay active, and with what weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.activations import activate
from sidr_rag.encoder.config import Activation
from sidr_rag.errors import InvalidInputError

Representation = Literal["theta", "lex", "bin", "bot"]
Sparsification = Literal["union", "topk", "own"]
Row = tuple[NDArray[np.int32], NDArray[np.float32]]

REPRESENTATIONS: tuple[str, ...] = get_args(Representation)
SPARSIFICATIONS: tuple[str, ...] = get_args(Sparsification)


def top_dims(values: NDArray[np.float32], k: int) -> NDArray[np.int32]:
    """The k dimensions with the largest values (the paper's S_topk); among equals the lower dimension wins.

    Args:
        values: f32[dim].
        k: at least 0; beyond dim it gives all dimensions.

    Returns:
        i32[min(k, dim)], ascending.
    """
    if k >= len(values):
        return np.arange(len(values), dtype=np.int32)
    if k <= 0:
        return np.empty(0, dtype=np.int32)
    threshold = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > threshold)
    level = np.flatnonzero(values == threshold)[: k - len(above)]
    return np.sort(np.concatenate([above, level])).astype(np.int32)


def bag_row(own: NDArray[np.int32]) -> Row:
    """V_BoT: weight 1 on each of the text's own tokens.

    Args:
        own: i32[m], ascending and distinct.
    """
    return own, np.ones(len(own), dtype=np.float32)


def sparse_row(
    logits: NDArray[np.float32],
    own: NDArray[np.int32],
    *,
    activation: Activation,
    representation: Representation,
    sparsification: Sparsification,
    max_active_dims: int,
    dims: NDArray[np.int32] | None = None,
) -> Row:
    """One text's vector.

    "theta" keeps the top `max_active_dims` dimensions united with the text's own tokens ("union"), the top alone
    ("topk", the paper's S_topk) or its own tokens alone ("own"); "lex" is V_theta on the own tokens (the paper's
    V^lex); "bin" has weight 1 where theta is active; "bot" is the bag of the own tokens. Dimensions are chosen by
    logit, of which every activation is an increasing function; weights of zero are left out.

    Args:
        logits: f32[dim], max-pooled over the text's tokens; or of `dims` alone.
        own: i32[m], the text's own dimensions, ascending and distinct.
        activation: what turns logits into weights.
        representation: "theta", "lex", "bin" or "bot".
        sparsification: "union", "topk" or "own".
        max_active_dims: k of the top-k; at least 1.
        dims: i32[n], ascending: the dimensions of the logits, own ones and the top k among them; None for all.

    Returns:
        dims i32[nnz], ascending, and weights f32[nnz], positive.

    Raises:
        InvalidInputError: if a logit is not finite, as after loading damaged weights.
    """
    if representation == "bot":
        return bag_row(own)
    if not np.isfinite(logits).all():
        raise InvalidInputError("model: its logits are not all finite; the weights are damaged, fetch them anew")
    own_at = own if dims is None else np.searchsorted(dims, own).astype(np.int32)
    if representation == "lex" or sparsification == "own":
        at = own_at
    else:
        at = top_dims(logits, max_active_dims)
        if sparsification == "union":
            at = np.union1d(at, own_at).astype(np.int32)
    weights = activate(logits[at], activation)
    dims = at if dims is None else dims[at]
    active = weights > 0
    if not active.all():
        dims, weights = dims[active], weights[active]
    if representation == "bin":
        weights = np.ones(len(dims), dtype=np.float32)
    return dims, weights


def merged_rows(rows: Sequence[Row]) -> Row:
    """The greatest value of each dimension over rows: dims ascending."""
    if len(rows) == 1:
        return rows[0]
    dims = np.concatenate([row[0] for row in rows])
    order = np.argsort(dims, kind="stable")
    dims, values = dims[order], np.concatenate([row[1] for row in rows])[order]
    starts = np.flatnonzero(np.diff(dims, prepend=-1))
    return dims[starts], np.maximum.reduceat(values, starts)
