"""The library's own exceptions: every one names what was given and how to mend it, never the text of a passage."""

from __future__ import annotations


class SidrError(Exception):
    """Base of every error that this library raises on its own account."""


class InvalidInputError(SidrError, ValueError):
    """An argument has a value that cannot be used; the message names the argument, the value and the fix."""


class InvalidTypeError(SidrError, TypeError):
    """An argument has a type that cannot be used; the message names the argument, the type and the fix."""


class IndexFormatError(SidrError):
    """A folder is no store, is damaged, or was written by another format or tokenizer; the message names the file."""


class StorageError(SidrError, OSError):
    """The disk refused an operation (full, read-only, failing); the store stays usable in its last committed state."""


class StoreLockedError(SidrError):
    """Another writer holds the store; the message names the holder."""


class ReadOnlyError(SidrError):
    """A write was asked of a store that was opened read-only."""


class ModelNotFoundError(SidrError):
    """A model is not on this machine and could not be fetched; the message says where it was looked for."""


class MissingExtraError(SidrError, ImportError):
    """An optional dependency is absent; the message gives the `pip install` that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'sidr-rag[{extra}]'")


class FileReadError(SidrError):
    """A file could not be turned into passages; the message names the file and the reason."""
