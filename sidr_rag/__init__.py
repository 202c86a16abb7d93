"""sidr-rag: retrieval for RAG in which a fresh document is searchable the moment it is tokenized."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidr_rag.engine import SiDR as SiDR
    from sidr_rag.errors import (
        FileReadError as FileReadError,
    )
    from sidr_rag.errors import (
        IndexFormatError as IndexFormatError,
    )
    from sidr_rag.errors import (
        InvalidInputError as InvalidInputError,
    )
    from sidr_rag.errors import (
        InvalidTypeError as InvalidTypeError,
    )
    from sidr_rag.errors import (
        MissingExtraError as MissingExtraError,
    )
    from sidr_rag.errors import (
        ModelNotFoundError as ModelNotFoundError,
    )
    from sidr_rag.errors import (
        ReadOnlyError as ReadOnlyError,
    )
    from sidr_rag.errors import (
        SidrError as SidrError,
    )
    from sidr_rag.errors import (
        StorageError as StorageError,
    )
    from sidr_rag.errors import (
        StoreLockedError as StoreLockedError,
    )
    from sidr_rag.packing import Packed as Packed
    from sidr_rag.packing import pack as pack
    from sidr_rag.search.weighting import Weighting as Weighting
    from sidr_rag.types import Hits as Hits
    from sidr_rag.types import Passage as Passage
    from sidr_rag.types import SearchResult as SearchResult
    from sidr_rag.types import SparseVectors as SparseVectors

__version__ = "0.1.0"

_HOMES = {
    "FileReadError": "errors",
    "Hits": "types",
    "IndexFormatError": "errors",
    "InvalidInputError": "errors",
    "InvalidTypeError": "errors",
    "MissingExtraError": "errors",
    "ModelNotFoundError": "errors",
    "Packed": "packing",
    "Passage": "types",
    "ReadOnlyError": "errors",
    "SearchResult": "types",
    "SiDR": "engine",
    "SidrError": "errors",
    "SparseVectors": "types",
    "StorageError": "errors",
    "StoreLockedError": "errors",
    "Weighting": "search.weighting",
    "pack": "packing",
}

__all__ = [
    "FileReadError",
    "Hits",
    "IndexFormatError",
    "InvalidInputError",
    "InvalidTypeError",
    "MissingExtraError",
    "ModelNotFoundError",
    "Packed",
    "Passage",
    "ReadOnlyError",
    "SearchResult",
    "SiDR",
    "SidrError",
    "SparseVectors",
    "StorageError",
    "StoreLockedError",
    "Weighting",
    "__version__",
    "pack",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
