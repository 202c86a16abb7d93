"""Which files there are to read, in a fixed order, and which are left out and why."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sidr_rag.errors import FileReadError, InvalidTypeError
from sidr_rag.files.kinds import kind_of
from sidr_rag.files.limits import Limits
from sidr_rag.files.names import file_refusal, folder_refusal
from sidr_rag.files.opening import too_large

PathLike = str | os.PathLike[str]
Found = tuple[Path, str | None]


def walk(paths: PathLike | Iterable[PathLike], limits: Limits) -> Iterator[Found]:
    """List the files under `paths`: (absolute path, None) for one to read, (path, reason) for one left out.

    Folders are walked in order of name, folder and file names together. Links named by the caller are followed;
    links found in a folder never are, since what they point to inside the folder is found there anyway.

    Args:
        paths: files and folders.
        limits: sizes and numbers.

    Raises:
        InvalidTypeError: a path is neither a string nor an `os.PathLike` of one.
        FileReadError: a named path does not exist; raised before anything is listed.
    """
    return _walk([_resolve(path) for path in _as_list(paths)], limits)


def _walk(roots: list[tuple[Path, Path]], limits: Limits) -> Iterator[Found]:
    seen: set[str] = set()
    n_files = 0
    for root, resolved in roots:
        for path, reason in _root(root, resolved, limits):
            if reason is None:
                if str(path) in seen:
                    # Reached through two of the named paths.
                    continue
                if n_files == limits.max_files:
                    yield path, f"more than max_files={limits.max_files:,} files; this one and all after it"
                    return
                seen.add(str(path))
                n_files += 1
            yield path, reason


def _as_list(paths: PathLike | Iterable[PathLike]) -> list[Path]:
    items: list[object] = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else []
    if not items:
        try:
            items = list(paths)  # type: ignore[arg-type]
        except TypeError:
            items = [paths]
    for item in items:
        if not isinstance(item, (str, os.PathLike)):
            raise InvalidTypeError(f"paths must hold strings or os.PathLike objects, got {type(item).__name__}")
    return [Path(os.fsdecode(item)) for item in items if isinstance(item, (str, os.PathLike))]


def _resolve(path: Path) -> tuple[Path, Path]:
    try:
        return path, path.resolve(strict=True)
    except FileNotFoundError:
        raise FileReadError(f"no such file or folder: {str(path)!r}") from None
    except (OSError, RuntimeError, ValueError) as error:
        # A loop of links, a NUL byte in the name, a parent that may not be searched.
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise FileReadError(f"cannot look up {str(path)!r}: {reason}") from error


def _root(named: Path, resolved: Path, limits: Limits) -> Iterator[Found]:
    try:
        status = resolved.stat()
    except OSError as error:
        yield resolved, error.strerror or type(error).__name__
        return
    refusal = folder_refusal if stat.S_ISDIR(status.st_mode) else file_refusal
    # "." and ".." name no folder; a link's own name counts as well as that of what it points to.
    names = [named.name] if named.name not in ("", "..") else []
    if named.is_symlink():
        names.append(resolved.name)
    reason = next((why for name in names if (why := refusal(name))), None)
    if reason is not None:
        yield resolved, reason
    elif stat.S_ISDIR(status.st_mode):
        yield from _folder(resolved, limits)
    else:
        yield resolved, _file_reason(resolved, status, limits)


def _folder(root: Path, limits: Limits) -> Iterator[Found]:
    # A stack in place of recursion: folders can be nested deeper than Python's calls.
    pending = [root]
    while pending:
        path = pending.pop()
        try:
            status = path.lstat()
        except OSError as error:
            yield path, error.strerror or type(error).__name__
            continue
        if stat.S_ISLNK(status.st_mode):
            yield path, _link_reason(path, root)
        elif not stat.S_ISDIR(status.st_mode):
            yield path, file_refusal(path.name) or _file_reason(path, status, limits)
        elif path != root and (reason := folder_refusal(path.name)):
            yield path, reason
        else:
            try:
                names = sorted((child.name for child in path.iterdir()), reverse=True)
            except OSError as error:
                yield path, error.strerror or type(error).__name__
                continue
            pending.extend(path / name for name in names)


def _file_reason(path: Path, status: os.stat_result, limits: Limits) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if kind_of(path) is None:
        return f"unsupported kind {path.suffix!r}" if path.suffix else "unsupported kind (no ending)"
    if status.st_size > limits.max_file_bytes:
        return too_large(status.st_size, limits)
    return None


def _link_reason(path: Path, root: Path) -> str:
    try:
        target = path.resolve(strict=True)
    except FileNotFoundError:
        return "a link to nothing"
    except (OSError, RuntimeError):
        return "a link that leads to itself"
    return "a link to a place in the same folder" if target.is_relative_to(root) else "a link out of the folder"
