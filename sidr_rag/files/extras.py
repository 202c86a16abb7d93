"""The optional packages of the extra `files`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sidr_rag.errors import MissingExtraError


def require(module: str, package: str, purpose: str) -> Any:
    """Import `module` of the optional `package`.

    Raises:
        MissingExtraError: the package is not installed; the message says what needs it and how to get it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, "files", purpose) from error
