"""What a training run is described by: one YAML file, checked before anything is read or computed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sidr_rag.errors import InvalidInputError, MissingExtraError, ModelNotFoundError
from sidr_rag.train.sections import (
    TERMS,
    Corpus,
    Data,
    Dev,
    Distillation,
    Model,
    Optimizer,
    Retrieval,
    Stage,
    Steps,
    Term,
)
from sidr_rag.train.settings import build, plain


@dataclass(frozen=True)
class TrainConfig:
    """A whole training run.

    Attributes:
        name: of the finished model.
        base: folder of the model to start from; relative to the configuration's folder.
        output: folder of checkpoints, log, plot and the finished model; relative to the configuration's folder.
        terms: the loss; a term that is not named is off.
        stages: what changes on the way, in the order of their steps.
        device: "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:N".
        dtype: of matrix products: "bfloat16" or "float32".
        threads: of torch; None leaves its own choice.
        checkpoint_every: optimizer steps between two checkpoints.
        show_every: optimizer steps between two lines of progress.
        examples_every: optimizer steps between two showings of example token weights.
    """

    name: str
    base: Path
    output: Path
    data: Data
    steps: Steps
    terms: dict[str, Term]
    seed: int = 1
    model: Model = field(default_factory=Model)
    retrieval: Retrieval = field(default_factory=Retrieval)
    corpus: Corpus = field(default_factory=Corpus)
    distillation: Distillation | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    stages: tuple[Stage, ...] = ()
    dev: Dev = field(default_factory=Dev)
    device: str = "auto"
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    threads: int | None = None
    checkpoint_every: int = 100
    show_every: int = 10
    examples_every: int = 200

    def __post_init__(self) -> None:
        self._check_stages()
        unknown = sorted({*self.terms, *(term for stage in self.stages for term in stage.terms)} - set(TERMS))
        if unknown:
            raise InvalidInputError(f"terms.{unknown[0]} is no term of the loss; known: {', '.join(TERMS)}")
        if not any(term.weight > 0 for term in self.terms.values()):
            raise InvalidInputError("terms: every weight is 0, so nothing would be learned; give one a positive weight")
        if self.steps.beta_per_full and not (self.weight("weighted") or self.weight("query_bot")):
            raise InvalidInputError(
                "steps.beta_per_full: beta steps learn by the terms 'weighted' and 'query_bot', and both are off; "
                "set it to 0"
            )
        if not self.data.sources:
            raise InvalidInputError("data.sources is empty; name at least one source")
        for name, term in ((n, t) for terms in (self.terms, *(s.terms for s in self.stages)) for n, t in terms.items()):
            if term.active_dims is not None and (name != "query_bot" or term.active_dims < 1):
                raise InvalidInputError(
                    f"terms.{name}.active_dims is {term.active_dims}; it is of query_bot alone, and at least 1"
                )
        if self.model.binary_layers:
            self._check_binary_layers()
        for name, value, least in self._counts():
            if value < least:
                raise InvalidInputError(f"{name} is {value}; expected at least {least}")
        for name, share in (
            ("data.title_dropout", self.data.title_dropout),
            ("data.one_source", self.data.one_source),
            ("model.dropout", self.model.dropout),
            ("optimizer.final_share", self.optimizer.final_share),
            ("optimizer.average", self.optimizer.average),
        ):
            if not 0 <= share <= 1:
                raise InvalidInputError(f"{name} is {share}; expected a share between 0 and 1")

    def _counts(self) -> list[tuple[str, int, int]]:
        return [
            ("model.binary_layers", self.model.binary_layers, 0),
            ("steps.total", self.steps.total, 1),
            ("steps.beta_batch", self.steps.beta_batch, 1),
            ("steps.full_batch", self.steps.full_batch, 1),
            ("steps.beta_per_full", self.steps.beta_per_full, 0),
            ("steps.accumulate", self.steps.accumulate, 1),
            ("steps.active_dims", self.steps.active_dims, 1),
            ("retrieval.m", self.retrieval.m, 0),
            ("retrieval.bags", self.retrieval.bags, 0),
            ("retrieval.random_bags", self.retrieval.random_bags, 0),
            ("retrieval.negatives", self.retrieval.negatives, 0),
            ("optimizer.warmup", self.optimizer.warmup, 0),
            ("dev.every", self.dev.every, 1),
            ("checkpoint_every", self.checkpoint_every, 1),
            ("show_every", self.show_every, 1),
            ("examples_every", self.examples_every, 1),
        ]

    def _check_binary_layers(self) -> None:
        """Of a run that trains these alone: nothing else can learn from it."""
        taught = self.distillation
        on = {name for terms in (self.terms, *(s.terms for s in self.stages)) for name, t in terms.items() if t.weight}
        if taught is not None:
            by_cross = taught.terms if taught.cross is not None else {}
            on |= {name for factors in (by_cross, taught.dense_terms) for name, factor in factors.items() if factor}
            on |= {"distillation.anchor"} if taught.anchor else set()
        if on != {"query_bot"}:
            raise InvalidInputError(
                f"model.binary_layers is {self.model.binary_layers}: query_bot alone teaches such layers, but the loss "
                f"has {', '.join(sorted(on))}; leave the others out, also of distillation"
            )
        if self.dev.sets and self.dev.choose != "binary":
            raise InvalidInputError(f"dev.choose is {self.dev.choose!r}; with model.binary_layers it must be 'binary'")

    def _check_stages(self) -> None:
        before = 0
        for i, stage in enumerate(self.stages):
            if stage.after <= before:
                raise InvalidInputError(f"stages[{i}].after is {stage.after}; expected more than {before}")
            before = stage.after
            if stage.active_dims is not None and stage.active_dims < 1:
                raise InvalidInputError(f"stages[{i}].active_dims is {stage.active_dims}; expected at least 1")
            if stage.corpus is not None and self.corpus.learned:
                raise InvalidInputError(f"stages[{i}].corpus would undo what was learned; set corpus.learned to false")
            if stage.corpus is not None and stage.corpus.levels != self.corpus.start.levels:
                raise InvalidInputError(
                    f"stages[{i}].corpus.levels is {stage.corpus.levels}; the index of the run has those of "
                    f"corpus.start, {self.corpus.start.levels}"
                )

    def at(self, step: int) -> TrainConfig:
        """The configuration that holds for a step (from 0): every stage that has begun is a part of it."""
        config = self
        for stage in self.stages:
            if stage.after <= step:
                steps, corpus = config.steps, config.corpus
                if stage.active_dims is not None:
                    steps = replace(steps, active_dims=stage.active_dims)
                if stage.corpus is not None:
                    corpus = replace(corpus, start=stage.corpus)
                config = replace(config, steps=steps, corpus=corpus, terms={**config.terms, **stage.terms})
        return config

    def weight(self, term: str) -> float:
        """The factor of a term; 0 where it is off."""
        return self.terms[term].weight if term in self.terms else 0.0

    def dims_of(self, term: str) -> int | None:
        """How many of a query's active dimensions count in a term; None where all do."""
        return self.terms[term].active_dims if term in self.terms else None

    def fingerprint(self) -> str:
        """Of everything that decides the run's values; a checkpoint is resumed only under the same one."""
        described = plain(self)
        for name in ("name", "output", "device", "threads", "checkpoint_every", "show_every", "examples_every", "dev"):
            del described[name]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def load_train_config(path: str | Path) -> TrainConfig:
    """Read a training configuration.

    Args:
        path: a YAML file; the paths in it are relative to its folder.

    Raises:
        ModelNotFoundError: if there is no such file.
        MissingExtraError: if PyYAML is absent.
        InvalidInputError: if it is no YAML, or a setting is unknown, missing or has no usable value.
        InvalidTypeError: if a setting has the wrong type.
    """
    path = Path(path)
    config: TrainConfig = resolve_paths(build(TrainConfig, _yaml_values(path)), path.parent)
    return config


def load_dev(path: str | Path) -> Dev:
    """Read judged sets from a training configuration, or from a file that holds nothing but its `dev`.

    Args:
        path: a YAML file; the paths in it are relative to its folder.

    Raises:
        ModelNotFoundError, MissingExtraError, InvalidInputError, InvalidTypeError: as `load_train_config`.
    """
    path = Path(path)
    values = _yaml_values(path)
    if not isinstance(values, dict) or set(values) != {"dev"}:
        return load_train_config(path).dev
    dev: Dev = resolve_paths(build(Dev, values["dev"], "dev"), path.parent)
    return dev


def _yaml_values(path: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyyaml", "train", "a training configuration") from error
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise ModelNotFoundError(f"config: {path} is no file; give the path of a training configuration") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"config: {path} is no YAML ({str(error).splitlines()[0]})") from None


def resolve_paths(value: Any, folder: Path) -> Any:
    """The same value with every relative path in it taken from `folder`."""
    if isinstance(value, Path):
        return value if value.is_absolute() else Path(folder, value)
    if isinstance(value, tuple):
        return tuple(resolve_paths(entry, folder) for entry in value)
    if isinstance(value, dict):
        return {key: resolve_paths(entry, folder) for key, entry in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return replace(
            value, **{name: resolve_paths(getattr(value, name), folder) for name in value.__dataclass_fields__}
        )
    return value
