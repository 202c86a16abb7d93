"""Files and folders to passages: one small loader per kind, limits, and a report of what was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidr_rag.files.limits import Limits
    from sidr_rag.files.read import read_passages
    from sidr_rag.files.report import FileReport

__all__ = ["FileReport", "Limits", "read_passages"]

_HOMES = {
    "FileReport": "sidr_rag.files.report",
    "Limits": "sidr_rag.files.limits",
    "read_passages": "sidr_rag.files.read",
}


def __getattr__(name: str) -> Any:
    # Lazy, because the PDF worker imports this package under a memory limit and must not pull in NumPy.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
