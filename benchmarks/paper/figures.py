"""What is kept of an evaluation: means and costs by search; a table that was cut off goes on with its next set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sidr_rag.eval.report import Report


@dataclass(frozen=True)
class Figures:
    """Of one data set.

    Attributes:
        passages: of its corpus.
        queries: that were asked.
        means: by search and measure.
        texts: by search, how many texts an encoder reads; None for a ranking that was made elsewhere.
    """

    passages: int
    queries: int
    means: Mapping[str, Mapping[str, float]]
    texts: Mapping[str, int | None]

    @classmethod
    def of(cls, report: Report) -> Figures:
        """What is kept of a report."""
        means = {name: {m: r.mean(m) for m in report.measures} for name, r in report.results.items()}
        texts = {name: None if r.cost is None else r.cost.texts for name, r in report.results.items()}
        return cls(report.n_passages, report.n_queries, means, texts)

    def __contains__(self, search: str) -> bool:
        return search in self.means

    def percent(self, search: str, measure: str) -> float:
        """A mean, in per cent."""
        return 100 * self.means[search][measure]

    def percents(self, search: str, measures: Sequence[str]) -> str:
        """Several, as "46.0 / 68.9 / 80.2"."""
        return " / ".join(f"{self.percent(search, m):.1f}" for m in measures)


class Parts:
    """The figures of the sets of one table, each in a file until the whole table is there.

    Args:
        folder: of the files; None keeps nothing.
        table: the table's name.
        model: the fingerprint of the model that the figures are of.
    """

    def __init__(self, folder: Path | None, table: str, model: str) -> None:
        self._folder, self._stem = folder, f"{table}-{model}"

    def __contains__(self, data: str) -> bool:
        return self._folder is not None and self._path(data).exists()

    def made(self, data: str, make: Callable[[], Report | Figures]) -> Figures:
        """The figures of a set, measured now if they are not there."""
        if data in self:
            return Figures(**json.loads(self._path(data).read_text(encoding="utf-8")))
        found = make()
        figures = found if isinstance(found, Figures) else Figures.of(found)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished = self._path(data).with_suffix(".tmp")
            unfinished.write_text(json.dumps(asdict(figures)), encoding="utf-8")
            unfinished.rename(self._path(data))
        return figures

    def clear(self) -> None:
        """Forget all sets, so that the next run measures anew."""
        if self._folder is not None and self._folder.is_dir():
            for path in self._folder.glob(f"{self._stem}-*.json"):
                path.unlink()

    def _path(self, data: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._stem}-{data}.json"
