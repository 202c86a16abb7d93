"""What a figure was measured on, without anything that names the machine."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def describe(packages: Iterable[str]) -> dict[str, str | int | float | dict[str, str]]:
    """CPU, cores, memory, load of the last five minutes, Python and the versions of the packages that took part."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "ram_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": round(os.getloadavg()[1], 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in sorted({"sidr-rag", *packages})},
    }


def forget_peak() -> None:
    """Count the highest resident memory from now on, where the system allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def memory_bytes() -> tuple[int, int]:
    """This process's resident memory: now, and at its highest."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) * 1024, int(fields["VmHWM"].split()[0]) * 1024


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    wanted = {"model name": "", "cpu family": "", "model": ""}
    for line in info.splitlines():
        key, _, value = line.partition(":")
        if wanted.get(key.strip()) == "":
            wanted[key.strip()] = value.strip()
    return f"{wanted['model name']} (family {wanted['cpu family']}, model {wanted['model']})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
