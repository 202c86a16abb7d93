"""Where a folder lies: SQLite's journal and our lock need a disk of this machine."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|afs|ceph|glusterfs|lustre|gpfs|beegfs|ncpfs|davfs"
    r"|fuse\.(sshfs|s3fs|rclone|davfs2?|glusterfs|gcsfuse|goofys|ceph\w*|smbnetfs|juicefs|blobfuse2?)"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def network_type(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """The type of the network file system that a path lies on, such as "nfs4"; None if it is none, or not known.

    Args:
        path: need not exist yet.
        mounts: the kernel's table of mounts; where there is none, nothing is known.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    parts = path.absolute().resolve().parts
    best, found = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        mounted = Path(_ESCAPE.sub(lambda m: chr(int(m[1], 8)), fields[4])).parts
        # Of mounts on one place the later one is on top.
        if parts[: len(mounted)] == mounted and len(mounted) >= best:
            best, found = len(mounted), after.split(" ", 1)[0]
    return found if _NETWORK.fullmatch(found) else None
