"""The paper's second scenario, sizes of chunks: quality and seconds to rebuild, and the row 'w/ vary length'."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.paper.plots import draw_curves
from benchmarks.paper.rows import FOLDER, PaperTable, Row
from benchmarks.paper.setup import SUCCESS, Setup, shrunk
from benchmarks.paper.stages import trimmed
from sidr_rag import SiDR
from sidr_rag.eval import Bm25Search, Dataset, EngineSearch
from sidr_rag.eval.report import Report
from sidr_rag.eval.searches import Search
from sidr_rag.types import Passage

SET = "squad-dev"
_SIZES = (50, 100, 150, 200, 300, 400)
_QUERIES = 300
_READ = 400  # words that a reader is given
_PLOT = "chunks.svg"
_SEARCHES: dict[str, Search] = {
    "beta with levels": EngineSearch(),
    "beta, binary": EngineSearch("binary"),
    "BM25": Bm25Search(),
}
_TRIALS = 3


def empty() -> PaperTable:
    """Rows without figures."""
    return _table({}, {})


def run(setup: Setup) -> PaperTable:
    """Cut the articles in every size, rebuild, and ask."""
    data = setup.dataset(SET, limit=_QUERIES)
    if setup.small:
        data = shrunk(data, 3, 12)
    reports, seconds = {}, {}
    for size in _SIZES[:2] if setup.small else _SIZES:
        cut = recut(data, [size])
        texts = [p.text for p in cut.passages()]
        seconds[size] = trimmed(partial(SiDR.from_texts, texts, num_threads=1), _TRIALS)
        reports[size] = _report(setup, cut, f"{SET}-{size}-words", size)
    table = _table(reports, seconds)
    with tempfile.TemporaryDirectory() as folder:
        drawing = Path(folder) / _PLOT
        _draw(reports, seconds, drawing)
        if not setup.small:
            FOLDER.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(drawing, FOLDER / _PLOT)
    table.small = setup.small
    return table


def recut(data: Dataset, sizes: Sequence[int]) -> Dataset:
    """A set whose passages of one title are joined in order and cut anew, the sizes in words taken in turn."""

    def passages() -> Iterator[Passage]:
        articles: dict[str, list[str]] = {}
        for passage in data.passages():
            articles.setdefault(passage.title or "", []).extend(passage.text.split())
        turn = 0
        for title, words in articles.items():
            start = part = 0
            while start < len(words):
                size = sizes[turn % len(sizes)]
                yield Passage(f"{title}#{part}", " ".join(words[start : start + size]), title or None)
                start, part, turn = start + size, part + 1, turn + 1

    return replace(data, passages=passages, qrels={})


def varied_sizes(n: int, seed: int = 11) -> list[int]:
    """Lengths between 50 and 200 words, drawn so that short ones are more frequent and the mean is about 108."""
    drawn = np.exp(np.random.default_rng(seed).uniform(np.log(50), np.log(200), size=n))
    return [int(size) for size in drawn]


def within(size: int) -> str:
    """The measure of a reader who is given so many words: an answer among the first `_READ / size` chunks."""
    return f"Success(answers)@{max(1, _READ // size)}"


def _report(setup: Setup, data: Dataset, store: str, size: int) -> Report:
    place = setup.folder / "paper" / store
    shutil.rmtree(place, ignore_errors=True)  # made in a second, and another set of passages where the sizes changed
    return setup.report(data, _SEARCHES, list(dict.fromkeys([SUCCESS[0], within(size)])), store=store)


def _table(reports: Mapping[int, Report], seconds: Mapping[int, float]) -> PaperTable:
    rows = []
    for size in _SIZES:
        ours: dict[str, str | int | float | None] = {}
        if size in reports:
            report = reports[size]
            ours = {"chunks": report.n_passages, "CPU s to rebuild": seconds[size]}
            for name in _SEARCHES:
                top, read = (100 * report.results[name].mean(m) for m in (SUCCESS[0], within(size)))
                ours[name] = f"{top:.1f} / {read:.1f}"
        rows.append(Row(f"{size} words", {}, ours, "", ""))
    return PaperTable(
        "chunks",
        "Sizes of chunks (the paper's second scenario)",
        [
            f"The 48 articles of {SET}, their paragraphs joined in order and cut anew; {_QUERIES} questions. Accuracy "
            f"by answer strings, per cent: top 1, and within the first {_READ} words (as many chunks as fit), which is "
            "the fairer figure, as a longer chunk holds more answers. Title and text are indexed.",
            f"CPU seconds to rebuild the whole index by `SiDR.from_texts`, one thread; the middle of "
            f"{_TRIALS} runs. No embedding is made at any size.",
        ],
        rows,
        plots=[_PLOT] if reports else [],
    )


def _draw(reports: Mapping[int, Report], seconds: Mapping[int, float], path: Path) -> None:
    quality = {
        name: [(size, 100 * report.results[name].mean(within(size))) for size, report in reports.items()]
        for name in _SEARCHES
    }
    panels = {
        f"answer within {_READ} words, %": quality,
        "CPU s to rebuild": {"from_texts": list(seconds.items())},
    }
    draw_curves(panels, "words of a chunk", path)
