"""The second stage of a search: the best m candidates of each query, scored by what embeds or reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sidr_rag.costs import clocked, note
from sidr_rag.encoder import Encoder
from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.index.passages import Row
from sidr_rag.protocols import Reranker
from sidr_rag.rerank.bi_encoder import BiEncoder
from sidr_rag.rerank.codecs import ByteVectors, HalfWeights, SignVectors
from sidr_rag.rerank.late import DenseEmbedder, PassageEmbedder, blend_scores
from sidr_rag.rerank.maxsim import TokenEmbedder
from sidr_rag.rerank.queries import Queries
from sidr_rag.types import SparseVectors

NAMED = ("theta", "dense", "maxsim", "blend", "both", "all")

# The first stage counts less beside three scores than beside one: chosen on dev sets, see `benchmarks/training.md`.
_SHARE_OF_ALL = 0.5

Scoring: TypeAlias = Callable[[int, list[Row], NDArray[np.float32]], NDArray[np.float64]]
"""(number of the query, candidates, their first-stage scores f32[n]) -> f64[n]."""

Weigh: TypeAlias = Callable[[SparseVectors], SparseVectors]
"""V_theta of the queries -> w(q), what a store's weighting makes of it."""

Idf: TypeAlias = Callable[[NDArray[np.int32]], NDArray[np.float64]]
"""Dimensions i32[n] -> their inverse document frequencies in the collection, f64[n]."""


@dataclass(frozen=True)
class Blend:
    """A second stage blended with the first one's score: `reranker=Blend(BiEncoder("intfloat/e5-base-v2"), 0.5)`.

    The late score is `share * z(first) + (1 - share) * z(second)`, z-scores over the candidates of a query.

    Attributes:
        second: "theta", "dense", "maxsim", "both", "all", or any other second stage.
        share: of the first stage's score, 0 (the second alone) to 1.
    """

    second: Any
    share: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, (int, float)) or not 0 <= self.share <= 1:
            raise InvalidInputError(f"share={self.share!r} must be a number from 0 to 1")
        if self.second == "blend" or isinstance(self.second, Blend):
            raise InvalidInputError(
                "second is a blend already; give 'theta', 'dense', 'both', 'all' or another second stage"
            )
        check_reranker(self.second, "second")


def first_share(rerank_blend: float, way: str) -> float:
    """The first stage's share in the late score of a named second stage, by a model's `rerank_blend`."""
    return rerank_blend * (_SHARE_OF_ALL if way == "all" else 1.0)


def check_reranker(choice: object, name: str = "reranker") -> None:
    """Refuse what is no second stage.

    Raises:
        InvalidInputError, InvalidTypeError: naming the choices.
    """
    if isinstance(choice, str):
        if choice not in NAMED:
            raise InvalidInputError(f"{name}={choice!r} is not known; choose one of {', '.join(map(repr, NAMED))}")
    elif isinstance(choice, type) or not (
        choice is None
        or isinstance(choice, (Blend, BiEncoder, Encoder))
        or callable(getattr(choice, "rerank", None))
        or callable(choice)
    ):
        raise InvalidTypeError(
            f"{name} is a {type(choice).__name__}; give one of {', '.join(map(repr, NAMED))}, an object with a rerank "
            "method, or a callable"
        )


@dataclass(frozen=True)
class Collection:
    """What second stages ask of the collection that is searched; see `SecondStages.scoring`."""

    weigh: Weigh
    idf: Idf


class SecondStages:
    """Every second stage over one store; embeddings of passages are kept in the store's cache.

    Args:
        encoder: the store's.
        theta: V_theta of passages.
    """

    def __init__(self, encoder: Encoder, theta: PassageEmbedder) -> None:
        self._encoder = encoder
        self._theta = theta
        # Stand-ins of tests and of evaluations have no dense head.
        self._has_dense = getattr(encoder.config, "dense", None) is not None
        self._own = getattr(encoder.config, "reranker", None) or ("dense" if self._has_dense else "theta")

    @property
    def dense(self) -> DenseEmbedder | None:
        """Vectors of the model's dense head, if it has one."""
        if not self._has_dense:
            return None
        encoder = self._encoder
        space = self._theta.cache.space(encoder.dense_fingerprint, ByteVectors())
        return DenseEmbedder(encoder.encode_dense, space, encoder.dense_width)

    @property
    def tokens(self) -> TokenEmbedder | None:
        """Vectors of passages' tokens, if the model gives them."""
        encoder, width = self._encoder, getattr(self._encoder, "token_width", 0)
        if not width:
            return None
        return TokenEmbedder(encoder.encode_tokens, self._theta.cache.space(encoder.fingerprint, SignVectors()), width)

    def compares_tokens(self, choice: object) -> bool:
        """Whether a second stage asks for the vectors of the queries' tokens."""
        if isinstance(choice, Blend):
            choice = choice.second
        way = self._own if choice in (None, "blend") else choice
        return isinstance(way, str) and way in ("maxsim", "all") and self.tokens is not None

    def scoring(
        self,
        choice: str | Reranker | Any | None,
        queries: Queries,
        weigh: Weigh = lambda theta: theta,
        idf: Idf = lambda dims: np.ones(len(dims)),
    ) -> Scoring:
        """What scores the candidates of these queries.

        Args:
            choice: as `SiDR.search` takes it.
            queries: the queries.
            weigh: of V_theta(q) before it meets V_theta of passages; by default it stays as it is.
            idf: what a query's tokens count in MaxSim; by default all alike.

        Raises:
            InvalidInputError: if a dense head or vectors of tokens are asked for and the model has none.
        """
        collection = Collection(weigh, idf)
        if choice is None or choice in ("blend", "both", "all"):
            own = choice if choice in ("both", "all") else self._own
            share = first_share(self._encoder.config.rerank_blend or 0.0, own)
            return self._blended(self._plain(own, queries, collection), share)
        if isinstance(choice, Blend):
            inner = self._own if choice.second is None else choice.second
            return self._blended(self._plain(inner, queries, collection), choice.share)
        return self._plain(choice, queries, collection)

    def _plain(self, choice: str | Reranker | Any, queries: Queries, collection: Collection) -> Scoring:
        """A second stage without the first one's score."""
        if choice == "theta":
            return self._by_theta(queries, collection, self._theta)
        if choice == "dense":
            return self._by_head(queries)
        if choice == "both":
            # V_theta first: the dense vector comes along with it.
            return _halves(self._by_theta(queries, collection, self._theta), self._by_head(queries))
        if choice == "all":
            heads = _halves(self._by_theta(queries, collection, self._theta_and_tokens()), self._by_head(queries))
            return _halves(heads, self._by_tokens(queries, collection))
        if choice == "maxsim":
            return self._by_tokens(queries, collection)
        if isinstance(choice, BiEncoder):
            return self._by_bi_encoder(queries, choice)
        if isinstance(choice, Encoder):
            return self._by_encoder(queries, choice)
        return _by_object(queries, choice)

    def _theta_and_tokens(self) -> PassageEmbedder:
        """V_theta of passages from readings that give the vectors of their tokens as well."""
        encode = partial(self._encoder.encode_passages, tokens=True)
        return PassageEmbedder(self._encoder, self._theta.cache, self._theta.space, encode)

    @staticmethod
    def _by_theta(queries: Queries, collection: Collection, embedder: PassageEmbedder) -> Scoring:
        theta = collection.weigh(queries.theta)
        return lambda i, rows, _: embedder.scores(theta.row(i), _contents(rows))

    @staticmethod
    def _blended(inner: Scoring, share: float) -> Scoring:
        return lambda i, rows, first: blend_scores(first, inner(i, rows, first), share)

    def _by_encoder(self, queries: Queries, encoder: Encoder) -> Scoring:
        space = self._theta.cache.space(encoder.fingerprint, HalfWeights())
        embedder = PassageEmbedder(encoder, self._theta.cache, space)
        if encoder is self._encoder:
            theta = queries.theta
        else:
            with clocked("encode"):
                theta = encoder.encode_queries(queries.texts)
        return lambda i, rows, _: embedder.scores(theta.row(i), _contents(rows))

    def _by_head(self, queries: Queries) -> Scoring:
        embedder = self.dense
        if embedder is None:
            raise InvalidInputError(
                f"reranker: the model {self._encoder.config.name!r} has no dense head, which 'dense', 'both' and 'all' "
                "need; choose 'theta', or give a BiEncoder"
            )
        with clocked("encode"):
            vectors = self._encoder.encode_dense(queries.texts, "query")
        return lambda i, rows, _: embedder.scores(vectors[i], _contents(rows))

    def _by_tokens(self, queries: Queries, collection: Collection) -> Scoring:
        embedder = self.tokens
        if embedder is None:
            raise InvalidInputError(
                f"reranker: the model {self._encoder.config.name!r} gives no vectors of tokens, which 'maxsim' and "
                "'all' need; choose 'theta', or give a BiEncoder"
            )
        with clocked("encode"):
            tokens = self._encoder.encode_tokens(queries.texts, "query")
        weights = [np.where(dims < 0, 0.0, collection.idf(np.maximum(dims, 0))) for dims, _ in tokens]
        return lambda i, rows, _: embedder.scores(tokens[i].vectors, weights[i], _contents(rows))

    def _by_bi_encoder(self, queries: Queries, model: BiEncoder) -> Scoring:
        with clocked("encode"):
            vectors = model.encode_queries(queries.texts)
        space = self._theta.cache.space(model.fingerprint, ByteVectors())
        embedder = DenseEmbedder(model.encode_passages, space, model.width)
        return lambda i, rows, _: embedder.scores(vectors[i], _contents(rows))


def _halves(one: Scoring, other: Scoring) -> Scoring:
    return lambda i, rows, first: blend_scores(one(i, rows, first), other(i, rows, first), 0.5)


def _contents(rows: list[Row]) -> list[str]:
    return [row.content for row in rows]


def _by_object(queries: Queries, reranker: Any) -> Scoring:
    call = reranker.rerank if callable(getattr(reranker, "rerank", None)) else reranker

    def scores(i: int, rows: list[Row], first: NDArray[np.float32]) -> NDArray[np.float64]:
        given = call(queries.texts[i], [row.passage() for row in rows], first.copy())
        note(pairs=len(rows))
        second = np.asarray(given, dtype=np.float64)
        if second.shape != (len(rows),) or not np.isfinite(second).all():
            raise InvalidInputError(
                f"reranker gave an array of shape {second.shape}; "
                f"it must give one finite score for each of {len(rows)} passages"
            )
        return second

    return scores
