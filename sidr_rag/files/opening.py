"""Opening a file without being led astray: no links, no devices, nothing over the size limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from sidr_rag.errors import FileReadError
from sidr_rag.files.limits import Limits


def open_regular(path: Path, limits: Limits) -> BinaryIO:
    """Open a regular file for reading bytes.

    Raises:
        FileReadError: it is no longer a regular file, or is larger than `limits.max_file_bytes`.
        OSError: it is gone, is a link, or may not be read.
    """
    # O_NONBLOCK keeps a named pipe, put there since the folder was listed, from blocking the open.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileReadError("not a regular file")
        if status.st_size > limits.max_file_bytes:
            raise FileReadError(too_large(status.st_size, limits))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, limits: Limits) -> bytes:
    """The whole content of a regular file.

    Raises:
        FileReadError: as `open_regular`, or it grew past the limit while it was read.
        OSError: as `open_regular`.
    """
    with open_regular(path, limits) as file:
        data = file.read(limits.max_file_bytes + 1)
    if len(data) > limits.max_file_bytes:
        raise FileReadError(too_large(len(data), limits))
    return data


def too_large(size: int, limits: Limits) -> str:
    """The reason given for a file over the size limit."""
    return f"{size:,} bytes, more than max_file_bytes={limits.max_file_bytes:,}"
