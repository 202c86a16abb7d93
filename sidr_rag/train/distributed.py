"""Several processes, one model: gradients are averaged by torch's DistributedDataParallel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sidr_rag.encoder.torch_bert import torch_device
from sidr_rag.errors import InvalidInputError


@dataclass(frozen=True)
class Processes:
    """This process's place among those that train together."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes checkpoints, logs and progress."""
        return self.rank == 0


@contextmanager
def joined_processes(device: torch.device | None = None) -> Iterator[Processes]:
    """Join the processes that a launcher such as torchrun has started; alone where there is none.

    The launcher's variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are read.

    Args:
        device: where this process computes: on CUDA the back end is NCCL, else gloo.

    Raises:
        InvalidInputError: if the variables are there in part, or are no numbers.
    """
    names = ("RANK", "WORLD_SIZE")
    if not any(name in os.environ for name in names):
        yield Processes()
        return
    try:
        rank, world = (int(os.environ[name]) for name in names)
    except (KeyError, ValueError):
        raise InvalidInputError(
            f"{' and '.join(names)} must both be set to whole numbers; start with torchrun"
        ) from None
    cuda = device is not None and device.type == "cuda"
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world)
    try:
        yield Processes(rank, world)
    finally:
        dist.destroy_process_group()


def own_device(name: str) -> torch.device:
    """The device of that name; of several CUDA devices, the one that the launcher's LOCAL_RANK gives this process.

    Raises:
        InvalidInputError: if CUDA is asked for and absent.
    """
    device = torch_device(name)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    return device


def averaged(value: float) -> float:
    """The mean of a number over all processes; every process must call it."""
    if not (dist.is_available() and dist.is_initialized()):
        return value
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    total = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def barrier() -> None:
    """Wait for all processes."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
