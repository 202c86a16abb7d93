"""The command `sidr-rag`: index, add, search, delete, info."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sidr_rag.errors import MissingExtraError, SidrError

if TYPE_CHECKING:
    import typer

_NEEDED = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what follows the program's name; None takes them from `sys.argv`.

    Returns:
        The exit status: 0 for success, 1 for an error of the library (one line on stderr), 2 for wrong usage.
    """
    try:
        _app()(args=None if arguments is None else list(arguments), prog_name="sidr-rag")
    except SidrError as error:
        print(f"sidr-rag: {_one_line(str(error))}", file=sys.stderr)
        return 1
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0


def _app() -> typer.Typer:
    try:
        from sidr_rag.cli.app import app
    except ModuleNotFoundError as error:
        if error.name in _NEEDED:
            raise MissingExtraError(error.name, "cli", "the command line") from error
        raise
    return app


def _one_line(text: str) -> str:
    """The text without line breaks or characters that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)
