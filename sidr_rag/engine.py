"""SiDR: the one object that ties tokenizer, store, encoder, search and re-ranking together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidr_rag.encoder import Encoder
from sidr_rag.errors import IndexFormatError, InvalidInputError, InvalidTypeError
from sidr_rag.index.folder import FORMAT, Folder
from sidr_rag.index.snapshot import write_snapshot
from sidr_rag.index.store import Store
from sidr_rag.options import (
    WeightingChoice,
    new_settings,
    resolve_weighting,
    split_options,
    stored_weighting,
    with_preset,
)
from sidr_rag.pipeline import Pipeline
from sidr_rag.rerank.cache import EmbeddingCache, content_key
from sidr_rag.rerank.codecs import weight_codec
from sidr_rag.rerank.late import PassageEmbedder
from sidr_rag.search.beta import BetaKernel
from sidr_rag.search.searcher import SearchPool
from sidr_rag.search.weighting import Weighting
from sidr_rag.searching import Searching
from sidr_rag.types import Passage

if TYPE_CHECKING:
    from sidr_rag.files.walk import PathLike
    from sidr_rag.text import BagTokenizer
    from sidr_rag.uploads import UploadReport


class SiDR(Searching):
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
        kernel: BetaKernel = "auto",
        device: str = "auto",
        cache_bytes: int = 1 << 30,
        embedding_precision: str = "float16",
    ) -> None:
        """Tie existing parts together; most callers want `from_texts` or `open`."""
        lacking = [n for n in weighting.levels if n not in store.settings.thresholds]
        if lacking:
            raise InvalidInputError(
                f"weighting needs levels {list(weighting.levels)}, but this store keeps "
                f"{list(store.settings.thresholds)}; make a new store with weighting='default'"
            )
        beside = None if store.folder is None else store.folder.embeddings
        codec = weight_codec(embedding_precision)
        cache = EmbeddingCache(beside, encoder.fingerprint, cache_bytes, codec, read_only=store.read_only)
        embedder = PassageEmbedder(encoder, cache)
        super().__init__(store)
        self._encoder = encoder
        self._pool = SearchPool(num_threads)
        self._pipeline = Pipeline(store, encoder, embedder, weighting, self._pool, kernel, device=device)
        self._arguments: dict[str, Any] = {
            "num_threads": num_threads,
            "kernel": kernel,
            "device": device,
            "cache_bytes": cache_bytes,
            "embedding_precision": embedding_precision,
        }

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
            device: where queries are encoded, searched for and re-ranked: "auto" (CUDA where there is a card), "cpu",
                "cuda" or "cuda:N". Results of beta search have the same bits everywhere.
            weighting: "default" (the model's own), "binary" (the paper's), or a `Weighting`.
            num_workers: how many other processes count tokens, for large collections; see `add`.
            options: `preset="paper"`, the paper's own setting: no NFKC, texts cut at 256 tokens with a warning, binary
                weighting, S_topk with k = 768 on both sides (`sparsify="union"` beside it gives the authors' union with
                own tokens); of the encoder: `dtype`, `normalization`, `sparsify`, `max_length`, `truncate`,
                `max_active_dims`; of the search: `num_threads`,
                `kernel` ("auto", or "numpy", "numba", "torch", "triton"; see `sidr_rag.search.beta.check_kernel`); of
                embeddings: `cache_bytes` (about so much is kept beside the store) and
                `embedding_precision` ("float16", within 0.05 % of each weight, or "uint8", within 0.2 % of a passage's
                greatest weight and a quarter smaller).

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
        weighting, options = with_preset(weighting, options)
        encoder, rest = split_options(model, device, options)
        chosen = resolve_weighting(weighting, encoder)
        if path is not None and Folder(Path(path)).is_store() and not overwrite:
            raise IndexFormatError(f"{path}: holds a store already; open it with SiDR.open, or pass overwrite=True")
        store = Store.in_memory(new_settings(weighting, encoder), encoder.tokenizer)
        sidr = cls(store, encoder, chosen, device=device, **rest)
        fill(sidr)
        if path is None:
            return sidr
        write_snapshot(store, Path(path), overwrite=overwrite)
        sidr.close()
        return cls(Store.open(Path(path), encoder.tokenizer), encoder, chosen, device=device, **rest)

    @classmethod
    def open(
        cls,
        path: str | Path | Any,
        *,
        create: bool = False,
        read_only: bool = False,
        model: str | Path = "default",
        device: str = "auto",
        weighting: WeightingChoice | None = None,
        **options: Any,
    ) -> SiDR:
        """Open the store in a folder, or a collection on another engine.

        Args:
            path: the folder; or a URL as "qdrant://host:6333/collection" or "milvus://host:19530/collection", an
                engine's client, or a list of folders that are searched as one: see `sidr_rag.backends.opening`.
            create: make an empty store if there is none.
            read_only: never write to the folder; searches still see what other processes commit, and use the
                embeddings that are kept there.
            model: the model that the store was made for; a store never names one to load.
            device: "auto", "cpu", "cuda" or "cuda:N"; as for `from_texts`.
            weighting: None uses what the store was made with.
            options: as for `from_texts`.

        Raises:
            IndexFormatError: if the folder is no store, is damaged, or was made with another tokenizer or format.
        """
        if not isinstance(path, Path) and (not isinstance(path, str) or "://" in path):
            from sidr_rag.backends.opening import is_backend, open_backend

            if is_backend(path):
                choices: dict[str, Any] = {"create": create, "read_only": read_only, "model": model, "device": device}
                return open_backend(path, weighting=weighting, **choices, **options)
        weighting, options = with_preset(weighting, options)
        encoder, rest = split_options(model, device, options)
        folder = Path(path)
        if create and not read_only and not Folder(folder).is_store():
            store = Store.create(folder, new_settings(weighting or "default", encoder), encoder.tokenizer)
        else:
            store = Store.open(folder, encoder.tokenizer, read_only=read_only)
        choice = stored_weighting(store.settings) if weighting is None else weighting
        return cls(store, encoder, resolve_weighting(choice, encoder), device=device, **rest)

    def compact(self, purge: bool = False) -> None:
        """Merge the index into few segments; with `purge`, also leave nothing of deleted passages on disk."""
        self._store.compact()
        if purge:
            self._store.purge()
            self._pipeline.embedder.cache.keep_only({content_key(r.content) for r in self._store.scan()})

    def add_files(self, paths: PathLike | Iterable[PathLike], **options: Any) -> UploadReport:
        """Files and folders, each replacing what it gave before, in one commit; see `sidr_rag.uploads.add_files`."""
        from sidr_rag.uploads import add_files

        return add_files(self, paths, **options)

    def sync_folder(self, folder: PathLike | Iterable[PathLike], **options: Any) -> UploadReport:
        """`add_files`, and what came from files that are gone is removed; see `sidr_rag.uploads.sync_folder`."""
        from sidr_rag.uploads import sync_folder

        return sync_folder(self, folder, **options)

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
            "device_bytes": self._pipeline.first.device_bytes,
            "embedding_bytes": self._pipeline.full.nbytes,
            "cache_bytes": self._pipeline.embedder.cache.nbytes,
            "path": None if self.path is None else str(self.path),
            "model": self._encoder.config.name,
            "tokenizer": self._store.settings.fingerprint,
            "encoder": self._encoder.fingerprint,
            "weighting": self._pipeline.weighting.to_mapping(),
            "format": FORMAT,
        }

    def close(self) -> None:
        """Release folder, threads and caches; with a folder, later calls raise."""
        if self._embedding is not None:
            self._embedding.close()
        super().close()
        self._pipeline.first.close()
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
