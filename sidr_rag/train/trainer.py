"""A training run from its configuration to a finished model; killed at any moment, it resumes with the same values."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sidr_rag.encoder.model_tokenizer import load_tokenizer
from sidr_rag.errors import InvalidInputError, MissingExtraError
from sidr_rag.text.tokenizer import BagTokenizer
from sidr_rag.train.binary_layers import binary_shape, binary_state, train_own_alone
from sidr_rag.train.checkpoints import Checkpoints
from sidr_rag.train.config import TrainConfig
from sidr_rag.train.dev import DevEvaluation
from sidr_rag.train.distill import load_teachers
from sidr_rag.train.distributed import Processes, barrier, joined_processes, own_device
from sidr_rag.train.export import Exporter
from sidr_rag.train.interruption import interruption
from sidr_rag.train.journal import Journal, Progress
from sidr_rag.train.objective import Objective
from sidr_rag.train.optimizer import WeightAverage, make_optimizer, rate_at, set_rate
from sidr_rag.train.plot import plot_log
from sidr_rag.train.pool import Pool
from sidr_rag.train.sampler import Sampler, StepKind, source_shares
from sidr_rag.train.sections import ENCODED_TERMS
from sidr_rag.train.showing import heaviest_tokens
from sidr_rag.train.texts import TextReader
from sidr_rag.train.weights_io import initial_state, load_state, model_config

_SHOWN_QUERIES = 3
LAST, BEST = "last", "best"


def train(
    config: TrainConfig,
    *,
    restart: bool = False,
    steps: int | None = None,
    show: Callable[[str], None] = print,
) -> Path:
    """Run a training, or go on with one that was interrupted.

    Args:
        config: see `load_train_config`.
        restart: remove the checkpoints of an earlier run in the same output folder first.
        steps: stop after so many optimizer steps in all, with a checkpoint; None goes to the end.
        show: where progress goes, line by line.

    Returns:
        the folder of the model: the best on the dev sets, or the last where there are none or none was seen yet.

    Raises:
        InvalidInputError: if the checkpoints belong to another configuration, or the loss is no longer finite.
        FileReadError, ModelNotFoundError: if data or models cannot be read.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = own_device(config.device)
    with joined_processes(device) as processes:
        run = Run(config, processes, show if processes.first else lambda _: None, restart=restart, device=device)
        run.go(config.steps.total if steps is None else min(steps, config.steps.total))
        barrier()
    best = config.output / BEST
    return best if (best / "config.json").exists() else config.output / LAST


class Run:
    """Everything that a run holds in memory; see `train`."""

    def __init__(
        self,
        config: TrainConfig,
        processes: Processes,
        show: Callable[[str], None],
        *,
        restart: bool = False,
        device: torch.device | None = None,
    ) -> None:
        self._config, self._processes = config, processes
        self._progress = Progress(show, config.steps.total, config.show_every)
        self._journal = Journal(config.output / "log.jsonl")
        self._checkpoints = Checkpoints(config.output / "checkpoints", config.fingerprint(), processes.world)
        if restart and processes.first:
            self._checkpoints.clear()
        barrier()
        binary = config.model.binary_layers
        wanted = binary_shape(config.base, config.model) if binary else config.model
        self._model = model_config(config.base, wanted, config.name)
        self._tokenizer: BagTokenizer = load_tokenizer(config.base, self._model, "nfkc")
        reader = TextReader(self._tokenizer, self._model)
        self._reader = reader
        levels = config.corpus.start.levels
        self._pool = Pool(config.data, self._tokenizer, levels, config.seed)
        self._progress.say(
            f"{len(self._pool.examples):,} pairs of {len(self._pool.names)} sources, "
            f"{len(self._pool.contents):,} passages"
        )
        if not processes.first:
            barrier()  # the first process fills the cache
        mix = [source.weight for source in config.data.sources]
        sizes = [len(own) for own in self._pool.by_source]
        shares = source_shares(sizes, mix, config.data.size_exponent)
        teachers = load_teachers(
            config.distillation, self._pool, reader, shares, config.seed, self._progress.counting, device
        )
        if processes.first:
            barrier()
        torch.manual_seed(config.seed)
        self._objective = Objective(config, self._model, self._pool, reader, teachers)
        self._exporter = Exporter(config, self._model, self._objective)
        for side in self._exporter.sides:
            given = None if binary else initial_state(config.base, self._model, side, config.model.logit_bias)
            load_state(self._objective.encoder(side), given or binary_state(config.base, binary))
        if binary and self._model.bert is not None:
            query = self._objective.encoder("query")
            train_own_alone(self._objective, query, self._model.bert.num_hidden_layers, binary)
        self._objective.to(device or "cpu")
        self._module: nn.Module = self._objective
        if processes.world > 1:
            # Which encoders and heads take part depends on the step's kind.
            self._module = DistributedDataParallel(self._objective, find_unused_parameters=True)
        self._optimizer = make_optimizer(self._objective, config.optimizer)
        self._average = WeightAverage(self._objective, config.optimizer.average)
        self._sampler = Sampler(
            self._pool.by_source,
            mix,
            size_exponent=config.data.size_exponent,
            one_source=config.data.one_source,
            seed=config.seed,
            rank=processes.rank,
            world=processes.world,
            taught=teachers.taught(self._pool.by_source),
            taught_share=teachers.taught_share,
        )
        self._dev = (
            DevEvaluation(config.dev, self._tokenizer, reader, levels, self._model, own=self._exporter.second_stage)
            if config.dev.sets and processes.first
            else None
        )
        self._best: float | None = None
        self._step = 0
        self._resume()

    def go(self, until: int) -> None:
        """Train up to a step count, with checkpoints, evaluations and exports on the way."""
        self._objective.train()
        if self._step == 0:
            self._evaluate()
        with interruption() as interrupted:
            while self._step < until and not interrupted():
                record = self._one_step()
                self._step += 1
                if self._processes.first:
                    self._journal.write(record)
                    self._progress.step(record)
                    if self._step % self._config.examples_every == 0:
                        self._show_examples()
                if self._step % self._config.dev.every == 0 or self._step == self._config.steps.total:
                    self._evaluate()
                if self._step % self._config.checkpoint_every == 0 and self._step < until:
                    self._save()
            self._save()
        if self._processes.first:
            with self._average.applied():
                self._exporter.write(self._config.output / LAST)
            self._plot()

    def _one_step(self) -> dict[str, Any]:
        start = time.perf_counter()
        self._begin_stage()
        steps = self._config.steps
        rate = rate_at(self._step, steps.total, self._config.optimizer)
        set_rate(self._optimizer, rate)
        kind = self._kind()
        size = steps.full_batch if kind == "full" else steps.beta_batch
        metrics: dict[str, float] = {}
        for part in range(steps.accumulate):
            position = self._step * steps.accumulate + part
            batch = self._sampler.draw(position, kind, size)
            # Dropout depends on the place in the run alone, so a resumed run repeats it.
            torch.manual_seed(int(np.random.default_rng([*batch.seed, 1]).integers(1 << 62)))
            with self._unsynchronised(part < steps.accumulate - 1):
                loss, found = self._module(batch)
                if not bool(torch.isfinite(loss)):
                    raise InvalidInputError(
                        f"the loss is not finite at step {self._step}; lower optimizer.learning_rate and resume"
                    )
                (loss / steps.accumulate).backward()
            for name, value in found.items():
                metrics[name] = metrics.get(name, 0.0) + value / steps.accumulate
        norm = nn.utils.clip_grad_norm_(self._objective.parameters(), self._config.optimizer.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._average.update()
        facts = {"step": self._step, "event": "step", "kind": kind, "learning_rate_share": rate}
        return {**facts, "gradient_norm": float(norm), **metrics, "seconds": time.perf_counter() - start}

    def _begin_stage(self) -> None:
        if any(stage.after == self._step for stage in self._config.stages):
            self._objective.follow(self._config.at(self._step))
            self._progress.say(f"a new stage begins after step {self._step:,}")

    def _kind(self) -> StepKind:
        encodes = any(self._objective.learns(term) for term in ENCODED_TERMS)
        return "full" if encodes and self._step % (self._config.steps.beta_per_full + 1) == 0 else "beta"

    def _unsynchronised(self, wanted: bool) -> Any:
        if wanted and isinstance(self._module, DistributedDataParallel):
            return self._module.no_sync()
        return nullcontext()

    def _evaluate(self) -> None:
        if self._dev is None:
            return
        start = time.perf_counter()
        self._objective.eval()
        with self._average.applied():
            constants = self._objective.corpus.constants()
            encoders = self._objective.encoder("query"), self._objective.encoder("passage")
            scores = self._dev.scores(*encoders, constants)
            chosen = scores.get(self._config.dev.choose)
            value = None if chosen is None else float(np.mean(list(chosen.values())))
            best = value is not None and (self._best is None or value > self._best)
            if best:
                self._best = value
                self._exporter.write(self._config.output / BEST)
        self._objective.train()
        seconds = time.perf_counter() - start
        self._journal.write(
            {"step": self._step - 1, "event": "dev", "scores": scores, "best": best, "seconds": seconds}
            | {"weighting": constants.to_mapping()}
        )
        self._progress.dev(self._step, scores, best)
        self._plot()

    def _show_examples(self) -> None:
        self._objective.eval()
        chosen = [self._pool.examples[i * len(self._pool.examples) // _SHOWN_QUERIES] for i in range(_SHOWN_QUERIES)]
        texts = [example.query for example in chosen]
        self._progress.examples(
            heaviest_tokens(self._objective.encoder("query"), self._reader, self._tokenizer.vocabulary, texts)
        )
        self._objective.train()

    def _plot(self) -> None:
        try:
            plot_log(self._journal.path, self._config.output / "curves.svg")
        except MissingExtraError as error:
            self._progress.say(f"no plot: {error}")

    def _save(self) -> None:
        if not self._processes.first:
            return
        state = {
            "objective": self._objective.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "average": self._average.state(),
            "sampler": self._sampler.state(),
            "best": self._best,
        }
        self._checkpoints.save(self._step, state)

    def _resume(self) -> None:
        state = self._checkpoints.latest()
        if state is not None:
            self._step = int(state["step"])
            self._objective.follow(self._config.at(self._step - 1))
            self._objective.load_state_dict(state["objective"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._average.restore(state["average"])
            self._sampler.restore(state["sampler"])
            self._best = state["best"]
            self._progress.say(f"resumed after step {self._step:,}")
        if self._processes.first:
            self._journal.start_at(self._step)
