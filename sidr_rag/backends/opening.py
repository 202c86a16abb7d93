"""From a URL, a client or a list of folders to a `SiDR` on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from sidr_rag.errors import IndexFormatError, InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from sidr_rag.backends.protocol import IndexBackend
    from sidr_rag.engine import SiDR
    from sidr_rag.options import WeightingChoice

_SCHEMES = ("qdrant", "qdrant+https", "qdrant-edge", "milvus", "milvus+https")
_COLLECTION = "sidr"


def is_backend(place: Any) -> bool:
    """Whether a place is for `open_backend`: a URL, a client, or a list of folders, and no single folder."""
    if isinstance(place, str):
        return place.partition("://")[0] in _SCHEMES and "://" in place
    return not isinstance(place, Path) and place is not None


def open_backend(
    place: Any,
    *,
    create: bool = False,
    read_only: bool = False,
    model: str | Path = "default",
    device: str = "auto",
    weighting: WeightingChoice | None = None,
    overwrite: bool = False,
    collection: str | None = None,
    writer: str = "main",
    refresh_seconds: float = 1.0,
    progress: Callable[[int], None] | None = None,
    connection: Mapping[str, Any] | None = None,
    create_arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> SiDR:
    """A `SiDR` on a search engine's collection, or over several local stores.

    Args:
        place: `qdrant://host:6333/collection`, `qdrant+https://…`, `qdrant:///folder` (qdrant-client's local mode),
            `qdrant-edge:///folder`, `milvus://host:19530/collection`, `milvus+https://…`, `milvus:///path/file.db`;
            a `QdrantClient`, a `MilvusClient` or any `IndexBackend`; or a list of folders of local stores, which are
            searched as one.
        create: make what is not there.
        read_only: refuse to write.
        model: the model that the collection was made for.
        device: "auto", "cpu" or "cuda".
        weighting: None uses what the collection was made with.
        overwrite: with `create`, drop a collection that is there.
        collection: its name, where the place does not tell ("sidr").
        writer: this writer's name: processes that write to one collection at the same time need different ones.
        refresh_seconds: how old other writers' statistics may be when a search weighs its words.
        progress: called with the number of passages of a call that are stored so far, after every block.
        connection: handed to the engine's client, such as `{"api_key": ...}` or `{"token": ...}`.
        create_arguments: handed to the engine when a collection is made, such as `{"shard_number": 12}`.
        options: as for `SiDR.open`.

    Raises:
        IndexFormatError: if the collection is not there, or is of another tokenizer or format.
        InvalidInputError: for a URL that cannot be understood.
        MissingExtraError: if the engine's client is not installed.
        StorageError: if the engine does not answer.
    """
    if isinstance(place, (list, tuple)):
        from sidr_rag.backends.sharded import ShardedSiDR

        return ShardedSiDR.open_all(
            place, create=create, read_only=read_only, model=model, device=device, weighting=weighting, **options
        )
    from sidr_rag.backends.remote import RemoteSiDR
    from sidr_rag.backends.remote_store import RemoteStore
    from sidr_rag.options import new_settings, resolve_weighting, split_options, stored_weighting

    encoder, rest = split_options(model, device, options)
    backend = backend_of(place, collection, connection or {}, create_arguments or {})
    try:
        if create and not read_only:
            if overwrite:
                backend.drop()
            if not backend.exists():
                choice = weighting or "default"
                RemoteStore.create(backend, new_settings(choice, encoder), resolve_weighting(choice, encoder))
        if not backend.exists():
            raise IndexFormatError(f"{backend.place}: is not there; pass create=True to make it")
        store = RemoteStore(
            backend,
            encoder.tokenizer,
            writer=writer,
            refresh_seconds=refresh_seconds,
            read_only=read_only,
            progress=progress,
        )
        chosen = resolve_weighting(stored_weighting(store.settings) if weighting is None else weighting, encoder)
        rest.pop("kernel", None)
        return RemoteSiDR(store, encoder, chosen, **rest)
    except BaseException:
        backend.close()
        raise


def fill_backend(
    place: Any,
    texts: Iterable[str],
    *,
    ids: Iterable[str | None] | None = None,
    metadatas: Iterable[Mapping[str, Any] | None] | None = None,
    titles: Iterable[str | None] | None = None,
    num_workers: int = 0,
    overwrite: bool = False,
    **arguments: Any,
) -> SiDR:
    """`SiDR.from_texts` on a search engine: a new collection with these texts.

    Args:
        place: as for `open_backend`.
        texts: what to index.
        ids: one for each text.
        metadatas: one for each text.
        titles: one for each text.
        num_workers: how many other processes count tokens.
        overwrite: whether a collection that is there may be dropped; else it is an error.
        arguments: as for `open_backend`.

    Raises:
        IndexFormatError: if the collection is there and has passages, and `overwrite` is False.
    """
    sidr = open_backend(place, create=True, overwrite=overwrite, **arguments)
    try:
        if len(sidr):
            raise IndexFormatError(f"{sidr.info()['path']}: holds passages already; open it, or pass overwrite=True")
        sidr.add(texts, ids=ids, metadatas=metadatas, titles=titles, num_workers=num_workers)
    except BaseException:
        sidr.close()
        raise
    return sidr


def backend_of(
    place: Any, collection: str | None, connection: Mapping[str, Any], create_arguments: Mapping[str, Any]
) -> IndexBackend:
    """The engine's collection that a URL or client stands for.

    Raises:
        InvalidInputError: if it stands for none.
    """
    if not isinstance(place, str):
        return _of_client(place, collection or _COLLECTION, create_arguments)
    parts = urlsplit(place)
    if parts.scheme not in _SCHEMES:
        raise InvalidInputError(f"place={_shown(place)}: is no URL of {', '.join(s + '://' for s in _SCHEMES)}")
    if parts.username or parts.password:
        raise InvalidInputError(f"place={_shown(place)}: give secrets as connection={{'api_key': ...}}, not in the URL")
    path = unquote(parts.path)
    if parts.netloc:
        named = path.strip("/")
        if "/" in named:
            raise InvalidInputError(f"place={_shown(place)}: write it as scheme://host:port/collection")
        name = collection or named or _COLLECTION
    else:
        name = collection or parse_qs(parts.query).get("collection", [_COLLECTION])[0]
        if not path.strip("/"):
            raise InvalidInputError(f"place={_shown(place)}: names neither a host nor a path")
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    if parts.scheme == "qdrant-edge":
        from sidr_rag.backends.qdrant_edge import QdrantEdgeBackend

        return QdrantEdgeBackend(Path(path))
    if parts.scheme.startswith("qdrant"):
        from sidr_rag.backends.qdrant import QdrantBackend

        client = _qdrant_client(parts.scheme, parts.netloc, path, connection)
        return QdrantBackend(client, name, owned=True, create_arguments=create_arguments, place=shown)
    from sidr_rag.backends.milvus import MilvusBackend

    client = _milvus_client(parts.scheme, parts.netloc, path, connection)
    return MilvusBackend(client, name, owned=True, create_arguments=create_arguments, place=shown)


def _of_client(client: Any, collection: str, create_arguments: Mapping[str, Any]) -> IndexBackend:
    kind = type(client)
    if kind.__name__ == "QdrantClient":
        from sidr_rag.backends.qdrant import QdrantBackend

        return QdrantBackend(client, collection, create_arguments=create_arguments)
    if kind.__name__ == "MilvusClient":
        from sidr_rag.backends.milvus import MilvusBackend

        return MilvusBackend(client, collection, create_arguments=create_arguments)
    if callable(getattr(client, "put_notes", None)) and callable(getattr(client, "upsert", None)):
        backend: IndexBackend = client
        return backend
    raise InvalidInputError(
        f"place of type {kind.__name__}: give a URL, a QdrantClient, a MilvusClient, an IndexBackend "
        "or a list of folders"
    )


def _qdrant_client(scheme: str, netloc: str, path: str, connection: Mapping[str, Any]) -> Any:
    try:
        from qdrant_client import QdrantClient
    except ImportError as e:
        raise MissingExtraError("qdrant-client", "qdrant", "a Qdrant collection") from e
    if not netloc:
        return QdrantClient(path=path, **connection)
    secure = "https" if scheme.endswith("+https") else "http"
    return QdrantClient(url=f"{secure}://{netloc}", **{"timeout": 60, **connection})


def _milvus_client(scheme: str, netloc: str, path: str, connection: Mapping[str, Any]) -> Any:
    try:
        from pymilvus import MilvusClient
    except ImportError as e:
        raise MissingExtraError("pymilvus", "milvus", "a Milvus collection") from e
    secure = "https" if scheme.endswith("+https") else "http"
    return MilvusClient(uri=f"{secure}://{netloc}" if netloc else path, **connection)


def _shown(place: str) -> str:
    """The URL without what may be a secret."""
    parts = urlsplit(place)
    return repr(f"{parts.scheme}://{parts.hostname or ''}{parts.path}")
