"""Cuts token sequences into windows that the encoder can read, and packs windows into batches of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sidr_rag.encoder.backbones import Body
    from sidr_rag.encoder.config import DenseHead

T = TypeVar("T")
Item: TypeAlias = tuple[int, Sequence[int]]
"""A window's text, by number, and its token ids with special ones."""


def windows(ids: Sequence[int], size: int) -> list[Sequence[int]]:
    """Windows of `size` tokens that cover the whole text.

    The last one ends at the text's end and is as long as the others, so it overlaps its neighbour: a few tokens on
    their own would be read without their context. V_theta is a max-pool, so reading a token twice does no harm.

    Args:
        ids: the text's tokens, without special ones.
        size: at least 1.

    Returns:
        at least one window; the text itself where it fits.
    """
    if len(ids) <= size:
        return [ids]
    starts = [*range(0, len(ids) - size, size), len(ids) - size]
    return [ids[start : start + size] for start in starts]


def length_batches(
    items: Sequence[tuple[int, Sequence[int]]], max_tokens: int, max_items: int
) -> Iterator[list[tuple[int, Sequence[int]]]]:
    """Batches of sequences of like length, longest first.

    Args:
        items: (key, token ids) pairs.
        max_tokens: most tokens in a batch, padding included; a longer sequence gets a batch of its own.
        max_items: most sequences in a batch.

    Yields:
        every item once, keys kept.
    """
    batch: list[tuple[int, Sequence[int]]] = []
    for item in sorted(items, key=lambda pair: -len(pair[1])):
        longest = len(batch[0][1]) if batch else len(item[1])
        if batch and (len(batch) >= max_items or (len(batch) + 1) * longest > max_tokens):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Consecutive slices of at most `size` values."""
    return (values[start : start + size] for start in range(0, len(values), size))


def dense_vectors(
    items: Sequence[tuple[int, Sequence[int]]], n: int, body: Body, head: DenseHead, max_items: int = 256
) -> NDArray[np.float32]:
    """One vector for each text: the mean of its windows' vectors, by their lengths.

    Args:
        items: (number of the text, token ids with special ones) of each window.
        n: how many texts; every one has a window.
        body: what encodes them.
        head: how a window's states become a vector, and whether the text's vector is scaled to length 1.
        max_items: most windows in a batch.

    Returns:
        f32[n, hidden].
    """
    means = WindowMeans(n)
    for batch in length_batches(items, body.batch_tokens, max_items):
        means.add(batch, body.summaries([ids for _, ids in batch], head.pooling))
    return means.vectors(head)


class TokenVectors(NamedTuple):
    """The tokens of one text, in order, without special ones.

    Attributes:
        dims: i32[tokens], each token's dimension; -1 for a token that is none.
        vectors: f32[tokens, hidden].
    """

    dims: NDArray[np.int32]
    vectors: NDArray[np.float32]


def token_vectors(
    items: Sequence[Item], n: int, body: Body, token_to_dim: NDArray[np.int32], max_items: int = 256
) -> list[TokenVectors]:
    """The states of each text's tokens, window after window; see `dense_vectors`."""
    tokens = WindowTokens(n, token_to_dim)
    for batch in length_batches(items, body.batch_tokens, max_items):
        tokens.add(batch, body.token_states([ids for _, ids in batch]))
    return tokens.vectors()


class WindowTokens:
    """The vectors of the tokens of n texts, which all have a window.

    A text's windows are of one length, so batches by length keep their order.

    Args:
        n: how many texts.
        token_to_dim: i32[token ids].
    """

    def __init__(self, n: int, token_to_dim: NDArray[np.int32]) -> None:
        self._token_to_dim = token_to_dim
        self._ids: list[list[int]] = [[] for _ in range(n)]
        self._states: list[list[NDArray[np.float32]]] = [[] for _ in range(n)]

    def add(self, batch: Sequence[Item], states: Sequence[NDArray[np.float32]]) -> None:
        """Take f32[tokens, hidden] of each (number of the text, token ids with special ones)."""
        for (i, ids), found in zip(batch, states, strict=True):
            self._ids[i] += ids[1:-1]
            self._states[i].append(found[1:-1])

    def vectors(self) -> list[TokenVectors]:
        """Each text's tokens."""
        dims = [self._token_to_dim[np.asarray(ids, np.int64)].astype(np.int32) for ids in self._ids]
        return [TokenVectors(d, np.concatenate(parts)) for d, parts in zip(dims, self._states, strict=True)]


class WindowMeans:
    """One vector for each of n texts, which all have a window: the mean of its windows' vectors, by their lengths."""

    def __init__(self, n: int) -> None:
        self._sums: NDArray[np.float64] | None = None
        self._tokens = np.zeros(n)

    def add(self, batch: Sequence[tuple[int, Sequence[int]]], vectors: NDArray[np.float32]) -> None:
        """Take f32[len(batch), hidden], the vectors of (number of the text, token ids with special ones)."""
        if self._sums is None:
            self._sums = np.zeros((len(self._tokens), vectors.shape[1]))
        for (i, ids), vector in zip(batch, vectors, strict=True):
            self._sums[i] += vector.astype(np.float64) * len(ids)
            self._tokens[i] += len(ids)

    def vectors(self, head: DenseHead) -> NDArray[np.float32]:
        """f32[n, hidden], of length 1 where the head normalizes."""
        assert self._sums is not None
        means: NDArray[np.float64] = self._sums / self._tokens[:, None]
        if head.normalize:
            lengths = np.linalg.norm(means, axis=1, keepdims=True)
            np.divide(means, lengths, out=means, where=lengths > 0)
        return means.astype(np.float32)
