"""Whether there is a CUDA device, asked without importing torch where there can be none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def cuda_is_here() -> bool:
    """Whether torch is installed and finds a CUDA device; imports it only where a driver is, or where it already is."""
    there = sys.modules.get("torch") is not None
    if not there and (not any(driver.exists() for driver in _DRIVERS) or importlib.util.find_spec("torch") is None):
        return False
    import torch

    return torch.cuda.is_available()
