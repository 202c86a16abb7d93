import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from sidr_rag.errors import InvalidInputError
from sidr_rag.train.distributed import averaged, joined_processes
from sidr_rag.train.journal import read_log
from sidr_rag.train.settings import plain

# Each process trains, then says what its weights are; beside that, the gradient of the first batch is compared with
# the mean of the two processes' own gradients, computed without any communication.
PROGRAM = """
import json, sys
import torch
from sidr_rag.train import load_train_config
from sidr_rag.train.distributed import Processes, joined_processes
from sidr_rag.train.trainer import Run

config = load_train_config(sys.argv[1])
torch.set_num_threads(1)

def gradients(module):
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])

with joined_processes() as processes:
    run = Run(config, processes, lambda line: None)
    batch = run._sampler.draw(0, "full", 4)
    run._objective.eval()
    run._module(batch)[0].backward()
    together = gradients(run._objective).tolist()
    run._optimizer.zero_grad()
    run._objective(batch)[0].backward()
    alone = gradients(run._objective).tolist()
    run._optimizer.zero_grad()
    run._sampler.restore([0, 0])
    run.go(config.steps.total)
    weights = {n: p.detach().flatten()[:5].tolist() for n, p in run._objective.named_parameters()}
    json.dump({"together": together, "alone": alone, "weights": weights}, open(sys.argv[2] + str(processes.rank), "w"))
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_two_processes_train_one_model(tiny_config, tmp_path):
    terms = {
        "weighted": {"temperature": 2.0},
        "full": {"temperature": 30.0},
        "bot_passage": {"temperature": 2.0},
        "dense": {"temperature": 0.1},
    }
    config = tiny_config(steps={"total": 6, "beta_batch": 6, "full_batch": 4, "beta_per_full": 1}, terms=terms)
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(plain(config)), encoding="utf-8")
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "out")],
            env={**os.environ, **shared, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    first, second = (json.loads(Path(f"{tmp_path / 'out'}{rank}").read_text(encoding="utf-8")) for rank in range(2))
    assert first["weights"] == second["weights"]
    mean = (np.array(first["alone"]) + np.array(second["alone"])) / 2
    assert not np.allclose(first["alone"], second["alone"], rtol=1e-3)
    np.testing.assert_allclose(first["together"], mean, rtol=1e-4, atol=1e-7)
    assert [line["step"] for line in read_log(config.output / "log.jsonl")] == list(range(6))
    assert len(list((config.output / "checkpoints").glob("*.pt"))) == 2


def test_alone_there_is_nothing_to_join():
    with joined_processes() as processes:
        assert (processes.rank, processes.world, processes.first) == (0, 1, True)
    assert averaged(2.5) == 2.5


def test_a_half_set_environment_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(InvalidInputError, match="WORLD_SIZE"), joined_processes():
        pass
