"""Compiling with numba, once for each user: the code is kept in a private folder of theirs."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sidr_rag import __version__

_SOURCES = ("compiled_lists.py", "compiled_scans.py", "compiled_scores.py", "vectors.py")
_config_lock = threading.Lock()


def compile_cache_dir() -> Path | None:
    """The private folder of this user for compiled code, made if need be; None if there can be none.

    A folder that others can write to is refused: what lies in it is loaded as code.
    """
    try:
        path = _user_cache() / "sidr_rag" / "numba"
        path.mkdir(parents=True, mode=0o700, exist_ok=True)
        if os.name == "posix":
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
                return None
        return path if os.access(path, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    wanted = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return wanted if wanted.is_absolute() else Path.home() / ".cache"


def compile_for(function: Callable[..., Any], signatures: list[Any], cache: bool, pause: Callable[[], None]) -> Any:
    """`function` compiled by numba for each signature, or loaded if an earlier process has compiled it.

    Args:
        function: what to compile.
        signatures: tuples of numba's types.
        cache: keep the code in the user's cache folder (`NUMBA_CACHE_DIR` if that is set), where there can be one.
        pause: called before each signature; whatever it raises is let through.
    """
    if cache:
        with contextlib.suppress(Exception):  # full disk, damaged cache: compile without one
            return _compile(function, signatures, True, pause)
    return _compile(function, signatures, False, pause)


def _compile(function: Callable[..., Any], signatures: list[Any], cache: bool, pause: Callable[[], None]) -> Any:
    import numba

    with _cache_folder(numba.config, cache) as usable:
        dispatcher = numba.njit(nogil=True, cache=usable)(function)
    for signature in signatures:
        pause()
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher


@contextlib.contextmanager
def _cache_folder(config: Any, wanted: bool) -> Iterator[bool]:
    """Point numba at our part of the cache while a function is decorated, for numba fixes the place just then."""
    before = config.CACHE_DIR
    folder = (Path(before) if before else compile_cache_dir()) if wanted else None
    if folder is None:
        yield False
        return
    with _config_lock:
        config.CACHE_DIR = str(folder / _stamp())
        try:
            yield True
        finally:
            config.CACHE_DIR = before


def _stamp() -> str:
    """Names the code that is compiled: numba looks at a function's own file, not at what it calls."""
    here = Path(__file__).parent
    checksum = 0
    for name in _SOURCES:
        checksum = zlib.crc32((here / name).read_bytes(), checksum)
    return f"{__version__}-{checksum:08x}"
