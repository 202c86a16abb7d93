"""The searches that `late` measures, and their figures on one judged set, kept so that a run can be taken up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sidr_rag import SiDR
from sidr_rag.eval import Dataset, measure
from sidr_rag.rerank import BiEncoder, Blend
from sidr_rag.types import SearchResult

MEASURE = "nDCG@10"
TIMED = 40
_AT_ONCE = 64
_SIZES = (5, 10, 20, 100)
_DEV_SIZES = (5, 10, 20)
_SAMPLE = 64


@dataclass(frozen=True)
class Measured:
    """One search on one set.

    Attributes:
        score: nDCG@10.
        texts: queries and passages that an encoder reads for all queries, every candidate counted (the paper's cost).
        share: `texts` as a part of the corpus.
        distinct: passages among them that are not read twice.
        cpu_ms: milliseconds of CPU of one query, embeddings kept; the median.
    """

    score: float
    texts: int
    share: float
    distinct: int
    cpu_ms: float


@dataclass(frozen=True)
class SetFigures:
    """What was measured on one set.

    Attributes:
        passages: how many.
        queries: how many were asked.
        embed_ms: milliseconds of CPU to embed a passage, the mean over some.
        index_bytes: of the parametric index, a passage.
        kept_bytes: of all kept embeddings, a passage.
        searches: by name.
    """

    passages: int
    queries: int
    embed_ms: float
    index_bytes: float
    kept_bytes: float
    searches: dict[str, Measured]


def searches(minilm: BiEncoder, *, dev: bool) -> dict[str, dict[str, Any]]:
    """The arguments of every search, by its name; "weighting" is one of `SiDR.open`."""
    found: dict[str, dict[str, Any]] = {
        "beta": {},
        "beta, binary (the paper's)": {"weighting": "binary"},
        "lexical": {"first_stage": "lexical"},
        "BM25": {"first_stage": "bm25"},
        "beta + BM25, fused": {"first_stage": "sidr+bm25"},
    }
    most = max(sizes := _DEV_SIZES if dev else _SIZES)
    for m in sizes:
        found[f"late, the model's way, m = {m}"] = {"rerank": m}
    for m in (most,) if dev else (20, most):
        found[f"late, both heads, m = {m}"] = {"rerank": m, "reranker": "both"}
    found[f"late, V_theta alone, m = {most}"] = {"rerank": most, "reranker": "theta"}
    found[f"BM25 + late, m = {most}"] = {"rerank": most, "first_stage": "bm25"}
    found[f"fused + late, m = {most}"] = {"rerank": most, "first_stage": "sidr+bm25"}
    found[f"beta + MiniLM dense alone, m = {most}"] = {"rerank": most, "reranker": minilm}
    for m in sizes if dev else (20, most):
        found[f"beta + MiniLM dense, blended, m = {m}"] = {"rerank": m, "reranker": Blend(minilm, 0.5)}
    found[f"BM25 + MiniLM dense, blended, m = {most}"] = {
        "rerank": most,
        "first_stage": "bm25",
        "reranker": Blend(minilm, 0.5),
    }
    if not dev:
        found["full"] = {"search": "full"}
        found["auto, everything embedded"] = {"search": "auto"}
        return found
    for kind, second, shares in (
        ("V_theta", "theta", (0.3, 0.5, 0.7, 0.8, 0.9)),
        ("dense head", "dense", (0.3, 0.6)),
        ("both heads", "both", (0.3, 0.6)),
        ("both heads and tokens", "all", (0.15, 0.3, 0.45)),
        ("MiniLM dense", minilm, (0.3, 0.7, 0.8)),
    ):
        for share in shares:
            name = f"beta + {kind}, first stage's share {share}, m = {most}"
            found[name] = {"rerank": most, "reranker": Blend(second, share)}
    return found


def figures_of(
    data: Dataset, folder: Path, kept: Path, chosen: Mapping[str, dict[str, Any]], *, again: bool = False
) -> SetFigures:
    """Figures of one set, measured, or as an earlier run has kept them for the same model, queries and searches.

    Args:
        data: the set.
        folder: of its store, made if absent; its embeddings are made once.
        kept: the file of its figures.
        chosen: arguments of `SiDR.search` by the search's name.
        again: measure even where there are figures.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"device": "cpu", "dtype": "auto", "num_threads": 1, "cache_bytes": 1 << 40}
    if not (folder / "sidr.json").exists():
        SiDR.from_passages(data.passages(), path=folder, **options).close()
    with SiDR.open(folder, **options) as sidr, SiDR.open(folder, read_only=True, weighting="binary", **options) as flat:
        info = sidr.info()
        identity = [info["encoder"], repr(sidr.encoder.config), info["weighting"], list(data.queries), list(chosen)]
        found = None if again else _kept(kept, identity)
        if found is None:
            found = _measured(sidr, flat, data, chosen)
            kept.write_text(json.dumps({"of": identity, "figures": asdict(found)}) + "\n", encoding="utf-8")
    for name, m in found.searches.items():
        print(f"{data.name:18} {name:55} {m.score:.4f} {m.share:8.1%} {m.cpu_ms:8.1f} ms", flush=True)
    return found


def _kept(path: Path, identity: list[Any]) -> SetFigures | None:
    if not path.is_file():
        return None
    values = json.loads(path.read_text(encoding="utf-8"))
    if values["of"] != json.loads(json.dumps(identity)):
        return None
    figures = dict(values["figures"])
    return SetFigures(**{**figures, "searches": {name: Measured(**m) for name, m in figures["searches"].items()}})


def _measured(sidr: SiDR, flat: SiDR, data: Dataset, chosen: Mapping[str, dict[str, Any]]) -> SetFigures:
    n = len(sidr)
    if any(arguments.get("search") in ("full", "auto") for arguments in chosen.values()):
        sidr.embed(progress=_said(data.name))
    by_search = {}
    for name, arguments in chosen.items():
        engine = flat if "weighting" in arguments else sidr
        by_search[name] = _measure_search(engine, data, {k: v for k, v in arguments.items() if k != "weighting"})
        print(f"{data.name}: {name}: {by_search[name].score:.4f}", flush=True)
    contents = [p.content for p in sidr.get(sidr.ids()[:: max(1, n // _SAMPLE)])]
    sidr.encode_passages(contents[:4])
    start = time.process_time()
    sidr.encode_passages(contents)
    embed_ms = 1000 * (time.process_time() - start) / len(contents)
    info = sidr.info()
    return SetFigures(
        n, len(data.queries), embed_ms, info["embedding_bytes"] / n, info["cache_bytes"] / n, dict(by_search)
    )


def _said(name: str) -> Callable[[int, int], None]:
    last = [time.monotonic()]

    def progress(done: int, total: int) -> None:
        if time.monotonic() - last[0] > 60:
            last[0] = time.monotonic()
            print(f"{name}: {done:,} of {total:,} passages embedded", flush=True)

    return progress


def _measure_search(sidr: SiDR, data: Dataset, arguments: dict[str, Any]) -> Measured:
    depth = max(10, arguments.get("rerank", 0))
    ids, texts = list(data.queries), list(data.queries.values())
    run: dict[str, list[tuple[str, float]]] = {}
    read: list[str] = []
    with sidr.measured() as costs:
        for start in range(0, len(ids), _AT_ONCE):
            results = sidr.search(texts[start : start + _AT_ONCE], k=depth, **arguments)
            run.update(zip(ids[start : start + _AT_ONCE], map(_ranking, results), strict=True))
            read += [r.passage.id for found in results for r in found if r.reranked]
    whole = arguments.get("search") in ("full", "auto")
    n_texts = costs.queries + (len(sidr) if whole else len(read))
    score = float(np.mean(measure(run, data, [MEASURE])[MEASURE]))
    timed = [texts[i * len(texts) // min(TIMED, len(texts))] for i in range(min(TIMED, len(texts)))]
    spent = []
    for text in timed:
        start_cpu = time.process_time()
        sidr.search(text, **arguments)
        spent.append(time.process_time() - start_cpu)
    distinct = len(sidr) if whole else len(set(read))
    return Measured(score, n_texts, n_texts / len(sidr), distinct, 1000 * float(np.median(spent)))


def _ranking(results: Sequence[SearchResult]) -> list[tuple[str, float]]:
    # Places, since the scores of both stages are on one list.
    return [(r.passage.id, float(-r.rank)) for r in results[:10]]
