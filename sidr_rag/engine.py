"""SiDR: the one object that ties tokenizer, store, encoder, search and re-ranking together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from sidr_rag.collection import Collection
from sidr_rag.encoder import Encoder
from sidr_rag.errors import IndexFormatError, InvalidInputError, InvalidTypeError
from sidr_rag.explain import Explanation, explain_beta
from sidr_rag.index.folder import FORMAT, Folder
from sidr_rag.index.snapshot import write_snapshot
from sidr_rag.index.store import Store
from sidr_rag.inputs import as_count, query_list
from sidr_rag.options import WeightingChoice, new_settings, resolve_weighting, split_options, stored_weighting
from sidr_rag.pipeline import Pipeline, Request
from sidr_rag.protocols import Reranker
from sidr_rag.rerank.cache import EmbeddingCache, content_key
from sidr_rag.rerank.late import PassageEmbedder
from sidr_rag.search.filters import parse_filter
from sidr_rag.search.searcher import KernelChoice, SearchPool, check_weights
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import Hits, Passage, SearchResult, SparseVectors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sidr_rag.pipeline import SearchArguments
    from sidr_rag.text import BagTokenizer


class SiDR(Collection):
    """A searchable collection of passages; see `from_texts` and `open`.

    Safe to use from many threads. Without a folder everything is in memory; with one, `add` and `delete` are durable
    when they return. Also a context manager that closes the store.
    """

    def __init__(
        self,
        store: Store,
        encoder: Encoder,
        weighting: Weighting,
        *,
        num_threads: int | None = None,
        kernel: KernelChoice = "auto",
        cache_bytes: int = 1 << 30,
    ) -> None:
        """Tie existing parts together; most callers want `from_texts` or `open`."""
        lacking = [n for n in weighting.levels if n not in store.settings.thresholds]
        if lacking:
            raise InvalidInputError(
                f"weighting needs levels {list(weighting.levels)}, but this store keeps "
                f"{list(store.settings.thresholds)}; make a new store with weighting='default'"
            )
        beside = None if store.folder is None or store.read_only else store.folder.embeddings
        embedder = PassageEmbedder(encoder, EmbeddingCache(beside, encoder.fingerprint, cache_bytes))
        super().__init__(store)
        self._encoder = encoder
        self._pool = SearchPool(num_threads)
        self._pipeline = Pipeline(store, encoder, embedder, weighting, self._pool, kernel)
        self._arguments = {"num_threads": num_threads, "kernel": kernel, "cache_bytes": cache_bytes}

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        *,
        ids: Iterable[str | None] | None = None,
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        titles: Iterable[str | None] | None = None,
        path: str | Path | None = None,
        overwrite: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: WeightingChoice = "default",
        num_workers: int = 0,
        **options: Any,
    ) -> SiDR:
        """Index texts by tokenizing them; they are searchable when this returns.

        Args:
            texts: what to index; kept exactly as given.
            ids: one id for each text; None makes one.
            metadatas: one JSON-like mapping for each text.
            titles: one title for each text, indexed before it.
            path: a folder to keep the store in; None keeps it in memory.
            overwrite: whether an existing store at `path` may be replaced, in one step at the end.
            model: "default" (bundled, no download), a folder, or a name on the model hub (needs the extra `[torch]`).
            device: "auto", "cpu" or "cuda".
            weighting: "default" (the model's own), "binary" (the paper's), or a `Weighting`.
            num_workers: how many other processes count tokens, for large collections; see `add`.
            options: of the encoder: `dtype`, `normalization`, `sparsify`, `max_length`; of the search: `num_threads`,
                `kernel`, `cache_bytes`.

        Raises:
            InvalidInputError, InvalidTypeError: for bad arguments; nothing is then stored.
            IndexFormatError: if `path` holds a store and `overwrite` is False, or holds something else.
            ModelNotFoundError: if the model is not here and cannot be fetched.
        """
        return cls._filled(
            lambda sidr: sidr.add(texts, ids=ids, metadatas=metadatas, titles=titles, num_workers=num_workers),
            (path, overwrite, model, device, weighting),
            options,
        )

    @classmethod
    def from_passages(
        cls,
        passages: Iterable[Passage] | Callable[[BagTokenizer], Iterable[Passage]],
        *,
        path: str | Path | None = None,
        overwrite: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: WeightingChoice = "default",
        num_workers: int = 0,
        **options: Any,
    ) -> SiDR:
        """The same for `Passage` objects, or a function that makes them with the model's tokenizer.

        The function is for what counts tokens, such as `sidr_rag.files.read_passages`.
        """

        def fill(sidr: SiDR) -> None:
            found = passages(sidr.encoder.tokenizer) if callable(passages) else passages
            sidr.add_passages(found, num_workers=num_workers)

        return cls._filled(fill, (path, overwrite, model, device, weighting), options)

    @classmethod
    def _filled(
        cls,
        fill: Callable[[SiDR], object],
        place: tuple[str | Path | None, bool, str | Path, str, WeightingChoice],
        options: dict[str, Any],
    ) -> SiDR:
        """A new store, filled in memory and put into its folder, if it has one, in one step."""
        path, overwrite, model, device, weighting = place
        encoder, rest = split_options(model, device, options)
        chosen = resolve_weighting(weighting, encoder)
        if path is not None and Folder(Path(path)).is_store() and not overwrite:
            raise IndexFormatError(f"{path}: holds a store already; open it with SiDR.open, or pass overwrite=True")
        store = Store.in_memory(new_settings(weighting, encoder), encoder.tokenizer)
        sidr = cls(store, encoder, chosen, **rest)
        fill(sidr)
        if path is None:
            return sidr
        write_snapshot(store, Path(path), overwrite=overwrite)
        sidr.close()
        return cls(Store.open(Path(path), encoder.tokenizer), encoder, chosen, **rest)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        read_only: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: WeightingChoice | None = None,
        **options: Any,
    ) -> SiDR:
        """Open the store in a folder.

        Args:
            path: the folder.
            create: make an empty store if there is none.
            read_only: never write to the folder; searches still see what other processes commit.
            model: the model that the store was made for; a store never names one to load.
            device: "auto", "cpu" or "cuda".
            weighting: None uses what the store was made with.
            options: as for `from_texts`.

        Raises:
            IndexFormatError: if the folder is no store, is damaged, or was made with another tokenizer or format.
        """
        encoder, rest = split_options(model, device, options)
        folder = Path(path)
        if create and not read_only and not Folder(folder).is_store():
            store = Store.create(folder, new_settings(weighting or "default", encoder), encoder.tokenizer)
        else:
            store = Store.open(folder, encoder.tokenizer, read_only=read_only)
        choice = stored_weighting(store.settings) if weighting is None else weighting
        return cls(store, encoder, resolve_weighting(choice, encoder), **rest)

    def compact(self, purge: bool = False) -> None:
        """Merge the index into few segments; with `purge`, also leave nothing of deleted passages on disk."""
        self._store.compact()
        if purge:
            self._store.purge()
            self._pipeline.embedder.cache.keep_only({content_key(r.content) for r in self._store.scan()})

    # Searching

    @overload
    def search(  # type: ignore[overload-overlap]
        self, query: str, **arguments: Unpack[SearchArguments]
    ) -> list[SearchResult]: ...

    @overload
    def search(self, query: Sequence[str], **arguments: Unpack[SearchArguments]) -> list[list[SearchResult]]: ...

    def search(
        self,
        query: str | Sequence[str],
        *,
        k: int = 10,
        search: str = "beta",
        rerank: int = 0,
        filter: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        first_stage: str = "sidr",
        reranker: str | Reranker | None = None,
        query_repr: str = "theta",
        max_active_dims: int | None = None,
    ) -> list[SearchResult] | list[list[SearchResult]]:
        """The k best passages that share a token with the query vector: score descending, then oldest first.

        Args:
            query: one query, or a list of them (the result is then a list for each).
            k: how many; more than there are gives all matches, 0 none.
            search: "beta" (the bag-of-tokens index), "full" (V_theta of every passage, embedding what is missing), or
                "alpha" (the query's bag against V_theta of every passage).
            rerank: m; the best m candidates are ordered by the second stage, then the rest follow.
            filter: on metadata, applied before the cut to k; see `sidr_rag.search.filters`.
            min_score: leave out passages whose first-stage score is lower.
            first_stage: "sidr", or "lexical" (the query's own words, no encoder).
            reranker: None (the model's own way), "theta" (V_theta of the candidates, as in the paper), "blend" (with
                the first stage's score), or an object with a `rerank` method.
            query_repr: "theta", "lex", "bin" or "bot".
            max_active_dims: cut V_theta(q) to this many dimensions.

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
        """
        request = Request.of(
            k=k,
            search=search,
            rerank=rerank,
            filter=filter,
            min_score=min_score,
            first_stage=first_stage,
            reranker=reranker,
            query_repr=query_repr,
            max_active_dims=max_active_dims,
        )
        queries = [query] if isinstance(query, str) else query_list(query)
        results = self._pipeline.run(queries, request) if queries else []
        return results[0] if isinstance(query, str) else results

    def search_vectors(self, vectors: SparseVectors, k: int = 10, filter: Mapping[str, Any] | None = None) -> Hits:
        """The raw beta search of the paper: <vector, bag of tokens> of one level, for researchers and benchmarks.

        Args:
            vectors: query weights, finite and non-negative, in this store's dimensions.
            k: how many.
            filter: on metadata.
        """
        k = as_count("k", k)
        check_weights(vectors, self._store.settings.dim)
        found, rows = self._pipeline.run_vectors(vectors, k, parse_filter(filter))
        scores = np.full((len(found), max((len(v) for _, v in found), default=0)), -np.inf, dtype=np.float32)
        for i, (_, values) in enumerate(found):
            scores[i, : len(values)] = values
        return Hits([[rows[int(s)].id for s in seqs] for seqs, _ in found], scores)

    def explain(self, query: str, passage_id: str) -> Explanation:
        """The part of each token in a passage's beta score.

        Raises:
            InvalidInputError: if there is no such passage.
        """
        own = self._encoder.encode_queries([query], representation="bot")
        theta = self._encoder.encode_queries([query])
        with self._store.frozen():
            index = self._store.current()
            seq = self._store.lookup([passage_id]).get(passage_id)
        for view in index.views if seq is not None else ():
            rows = view.live_rows(np.array([seq], dtype=np.uint64))
            if len(rows):
                weighed = self._pipeline.weighed(theta, own, index)
                vocabulary = self._encoder.tokenizer.vocabulary
                return explain_beta(
                    passage_id, view, int(rows[0]), weighed, own, self._pipeline.weighting, index, vocabulary
                )
        raise InvalidInputError(f"passage_id={passage_id!r}: no such passage")

    def encode_queries(self, texts: Sequence[str], **arguments: Any) -> SparseVectors:
        """V_theta of queries; see `Encoder.encode_queries`."""
        return self._encoder.encode_queries(texts, **arguments)

    def encode_passages(self, texts: Sequence[str], **arguments: Any) -> SparseVectors:
        """V_theta of passages; see `Encoder.encode_passages`."""
        return self._encoder.encode_passages(texts, **arguments)

    def bags(self, texts: Sequence[str]) -> SparseVectors:
        """V_BoT of texts: weight 1 for each distinct token."""
        return self._encoder.encode_passages(texts, representation="bot")

    def embed(self) -> int:
        """Embed what is not embedded yet, so that full search answers at once; returns how many passages there are."""
        return self._pipeline.embed_all()

    @property
    def encoder(self) -> Encoder:
        """The model: tokenizer, vocabulary and V_theta."""
        return self._encoder

    def info(self) -> dict[str, Any]:
        """Facts about the store, for people: counts, levels, bytes of the index, model and fingerprints."""
        index = self._store.current()
        return {
            "passages": index.n_live,
            "tokens": index.total_length,
            "segments": len(index.views),
            "levels": list(self._store.settings.thresholds),
            "index_bytes": sum(view.segment.nbytes for view in index.views),
            "path": None if self.path is None else str(self.path),
            "model": self._encoder.config.name,
            "tokenizer": self._store.settings.fingerprint,
            "encoder": self._encoder.fingerprint,
            "weighting": self._pipeline.weighting.to_mapping(),
            "format": FORMAT,
        }

    def close(self) -> None:
        """Release folder, threads and caches; with a folder, later calls raise."""
        super().close()
        self._pipeline.embedder.cache.close()
        self._pool.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._store.folder is None:
            raise InvalidTypeError("a SiDR in memory cannot be pickled: save(path) it, and pickle SiDR.open(path)")
        parts = (self._store.folder.path.absolute(), self._store.read_only, self._encoder)
        return _reopened, (*parts, self._pipeline.weighting, self._arguments)

    def __repr__(self) -> str:
        where = "memory" if self.path is None else repr(str(self.path))
        return f"SiDR({len(self)} passages in {where}, model {self._encoder.config.name!r})"


def _reopened(path: Path, read_only: bool, encoder: Encoder, weighting: Weighting, arguments: dict[str, Any]) -> SiDR:
    return SiDR(Store.open(path, encoder.tokenizer, read_only=read_only), encoder, weighting, **arguments)
