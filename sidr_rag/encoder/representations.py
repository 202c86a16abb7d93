"""The representations of a text made from its V_theta and its bag of tokens, without encoding it again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.sparsify import REPRESENTATIONS
from sidr_rag.errors import InvalidInputError
from sidr_rag.types import SparseVectors


def represented(representation: str, theta: SparseVectors, bags: SparseVectors) -> SparseVectors:
    """One representation of texts; a search takes one of each side.

    Args:
        representation: "theta" (V_theta as it is), "lex" (`lexical`), "bin" (`binarized`) or "bot" (the bags).
        theta: V_theta of the texts.
        bags: their bags of tokens, row by row.

    Raises:
        InvalidInputError: for another name, or if the two do not have the same rows and dimensions.
    """
    if representation not in REPRESENTATIONS:
        raise InvalidInputError(f"representation={representation!r} is not known; choose one of {REPRESENTATIONS}")
    if representation == "theta":
        return theta
    if representation == "bin":
        return binarized(theta)
    return lexical(theta, bags) if representation == "lex" else bags


def lexical(theta: SparseVectors, bags: SparseVectors) -> SparseVectors:
    """V_theta^lex = V_BoT * V_theta (appendix of the paper, "Term Weighting and Expansion"): no expansion.

    Equals `Encoder`'s own "lex" where V_theta holds every token of its text, as with `sparsify="union"`; with "topk",
    tokens outside the top k have no weight.

    Raises:
        InvalidInputError: if the two do not have the same rows and dimensions.
    """
    if len(theta) != len(bags) or theta.dim != bags.dim:
        raise InvalidInputError(
            f"theta has {len(theta)} rows of {theta.dim} dimensions and bags {len(bags)} of {bags.dim}; "
            "give both of the same texts"
        )
    keep = np.isin(_places(theta), _places(bags), assume_unique=True)
    indptr = np.concatenate([[0], np.cumsum(keep)])[theta.indptr].astype(np.int64)
    return SparseVectors(indptr, theta.dims[keep], theta.weights[keep], theta.dim)


def binarized(theta: SparseVectors) -> SparseVectors:
    """V_theta^bin: 1 where V_theta is not zero (the same appendix): no weights."""
    active = theta.weights > 0
    indptr = np.concatenate([[0], np.cumsum(active)])[theta.indptr].astype(np.int64)
    return SparseVectors(indptr, theta.dims[active], np.ones(int(active.sum()), np.float32), theta.dim)


def _places(vectors: SparseVectors) -> NDArray[np.int64]:
    """Row and dimension of every entry as one number."""
    rows = np.repeat(np.arange(len(vectors), dtype=np.int64), np.diff(vectors.indptr))
    return rows * vectors.dim + vectors.dims
