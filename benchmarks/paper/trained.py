"""One small training run of an ablation, and what its model finds: `python -m benchmarks.paper.trained VARIANT SEED`.

A run that was stopped goes on where it was; one that has ended is not made again.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT
from benchmarks.options import make_parser
from benchmarks.paper.chunks import recut, varied_sizes
from benchmarks.paper.setup import SHARED, SUCCESS, Setup, shrunk
from sidr_rag import SiDR
from sidr_rag.encoder import load_encoder
from sidr_rag.eval import Dataset, EngineSearch, has_answer, named_searches
from sidr_rag.eval.searches import Search
from sidr_rag.train import TrainConfig, load_train_config, train
from sidr_rag.train.data import read_pairs, read_passages
from sidr_rag.train.sections import Source, Steps, Term

CONFIG = ROOT / "configs" / "paper-ablation.yaml"
STEPS = 300
_TRAIN = SHARED / "data" / "train"
_OTHER = _TRAIN / "medquad.jsonl.gz"
_SET, _QUERIES, _PASSAGES = "multispanqa-nq", 300, 1000
_LENGTHS, _LENGTH_QUERIES = "squad-dev", 300
_CANDIDATES = 20
_SMALL_PAIRS = 24


@dataclass(frozen=True)
class Variant:
    """An ablation.

    Attributes:
        retrieved: m of in-training retrieval; 0 for none.
        fixed: where each question's fixed negatives come from: "own" (the pool of the questions), "other", or "".
        semi_parametric: whether L_semi-para is a part of the loss.
        passage_dims: S_topk of passages in the loss; 1 leaves a passage its own tokens; None lets all count.
        half: whether the pool that is searched is half as large.
    """

    retrieved: int = 20
    fixed: str = ""
    semi_parametric: bool = True
    passage_dims: int | None = None
    half: bool = False


VARIANTS = {
    "base": Variant(),
    "retrieved-1": Variant(retrieved=1),
    "retrieved-100": Variant(retrieved=100),
    "other-source": Variant(retrieved=0, fixed="other"),
    "half-pool": Variant(half=True),
    "fixed-negatives": Variant(retrieved=0, fixed="own"),
    "no-negatives": Variant(retrieved=0),
    "no-semi-parametric": Variant(retrieved=0, fixed="own", semi_parametric=False),
    "lexical-passages": Variant(passage_dims=1),
}
_SEARCHES = ("full", "beta-binary", "theta:lex")


def figures(variant: str, seed: int, setup: Setup, steps: int = STEPS) -> dict[str, Any]:
    """Train the variant, unless that was done, and measure its model.

    Args:
        variant: of `VARIANTS`.
        seed: of the run.
        setup: where runs are kept.
        steps: of the run; another number is another run.

    Returns:
        "full", "beta-binary" and "theta:lex": top-1/5/20 accuracies in per cent; "lengths": top-1 of beta over passages
        of 100 words and of 50 to 200; "steps" and "seed".
    """
    folder = place(setup, variant, seed, steps)
    path = folder / "figures.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    folder.mkdir(parents=True, exist_ok=True)
    model = train(configured(variant, seed, setup, steps))
    measured = {**_measured(model, setup, folder.name), "steps": steps, "seed": seed}
    path.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    return measured


def place(setup: Setup, variant: str, seed: int, steps: int = STEPS) -> Path:
    """The folder of a run."""
    return setup.folder / "paper" / "trained" / f"{variant}-{seed}-{steps}{'-small' if setup.small else ''}"


def configured(variant: str, seed: int, setup: Setup, steps: int = STEPS) -> TrainConfig:
    """The configuration of a run; the variant's fixed negatives are made where they are needed."""
    chosen = VARIANTS[variant]
    base = load_train_config(CONFIG)
    [source] = base.data.sources
    limit = _SMALL_PAIRS if setup.small else None
    source = replace(source, limit=limit)
    if setup.small or chosen.half:
        source = replace(source, passages=() if setup.small else source.passages[1:])
    if chosen.fixed:
        source = replace(source, path=_fixed_negatives(chosen.fixed, source, setup))
    terms = base.terms if chosen.semi_parametric else {"full": Term(1.0)}
    shape = replace(base.steps, total=steps, passage_active_dims=chosen.passage_dims)
    return replace(
        base,
        name=f"{variant}-{seed}",
        seed=seed,
        output=place(setup, variant, seed, steps),
        data=replace(base.data, sources=(source,)),
        steps=_small(shape) if setup.small else shape,
        terms=terms,
        retrieval=replace(base.retrieval, m=chosen.retrieved, negatives=1 if chosen.retrieved or chosen.fixed else 0),
    )


def _small(steps: Steps) -> Steps:
    return replace(steps, full_batch=4, active_dims=32)


def _fixed_negatives(kind: str, source: Source, setup: Setup) -> Path:
    """The source's pairs with negatives that never change: the best by the question's own words, without an answer.

    "own" takes them from the source's further passages, "other" from as many passages of another source.
    """
    path = setup.folder / "paper" / "trained" / f"pairs-{kind}{'-small' if setup.small else ''}.jsonl.gz"
    if path.exists():
        return path
    pairs = list(read_pairs(source.path))[: source.limit]
    pool = [
        _content(t.title, t.text) for p in load_train_config(CONFIG).data.sources[0].passages for t in read_passages(p)
    ]
    if kind == "other":
        other = dict.fromkeys(_content(p.positives[0].title, p.positives[0].text) for p in read_pairs(_OTHER))
        pool = list(other)[: len(pool)]
    pool = pool[:200] if setup.small else pool
    sidr = SiDR.from_texts(pool)
    found = sidr.search([p.query for p in pairs], k=_CANDIDATES, first_stage="lexical")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    with gzip.open(unfinished, "wt", encoding="utf-8") as file:
        for pair, results in zip(pairs, found, strict=True):
            text = pair.positives[0]
            wrong = [r.passage.text for r in results if not has_answer(r.passage.text, pair.answers)]
            record = {"query": pair.query, "title": text.title, "text": text.text, "answers": list(pair.answers)}
            file.write(json.dumps({**record, "negatives": wrong}) + "\n")
    unfinished.rename(path)
    return path


def _content(title: str | None, text: str) -> str:
    return f"{title} {text}" if title else text


def _measured(model: Path, setup: Setup, name: str) -> dict[str, Any]:
    encoder = load_encoder(model, dtype="auto")
    data = setup.dataset(_SET) if setup.small else shrunk(setup.dataset(_SET), _QUERIES, _PASSAGES)
    searches: dict[str, Search] = named_searches(_SEARCHES)
    report = setup.report(data, searches, SUCCESS, model=encoder, store=f"trained/{name}/store")
    found: dict[str, Any] = {s: [100 * report.results[s].mean(m) for m in SUCCESS] for s in _SEARCHES}
    long = setup.dataset(_LENGTHS, limit=_LENGTH_QUERIES)
    beta: dict[str, Search] = {"beta": EngineSearch("binary")}
    lengths = []
    for kind, cut in _lengths(long):
        found_in = setup.report(cut, beta, SUCCESS[:1], model=encoder, store=f"trained/{name}/{kind}")
        lengths.append(100 * found_in.results["beta"].mean(SUCCESS[0]))
    return {**found, "lengths": lengths}


def _lengths(data: Dataset) -> Iterator[tuple[str, Dataset]]:
    yield "even", recut(data, [100])
    yield "varied", recut(data, varied_sizes(1000))


def main() -> None:
    """Train and measure one variant."""
    parser: argparse.ArgumentParser = make_parser(__doc__)
    parser.add_argument("variant", choices=list(VARIANTS))
    parser.add_argument("seed", type=int)
    parser.add_argument("--steps", type=int, default=STEPS, help="(%(default)s)")
    arguments = parser.parse_args()
    print(figures(arguments.variant, arguments.seed, Setup(arguments.folder, arguments.small), arguments.steps))


if __name__ == "__main__":
    main()
