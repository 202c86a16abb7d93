"""SQLite's errors in the system's own terms."""

from __future__ import annotations

import errno
import sqlite3

# By SQLite's primary result code (https://sqlite.org/rescode.html); the names are in `sqlite3` from Python 3.11 on.
_PERM, _BUSY, _LOCKED, _READONLY, _IOERR, _FULL, _CANTOPEN = 3, 5, 6, 8, 10, 13, 14
_ERRNO = {
    _PERM: errno.EACCES,
    _BUSY: errno.EBUSY,
    _LOCKED: errno.EBUSY,
    _READONLY: errno.EROFS,
    _IOERR: errno.EIO,
    _FULL: errno.ENOSPC,
    _CANTOPEN: errno.ENOENT,
}


def errno_of(error: sqlite3.Error | OSError) -> int:
    """What the system would have said: ENOSPC for a full disk and so on; EIO where nothing else fits."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # Python 3.10
        code = _FULL if "full" in str(error) else _BUSY if "locked" in str(error) else _IOERR
    return _ERRNO.get(code & 0xFF, errno.EIO)
