"""What an evaluation found: measures and costs of each search, and comparisons between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sidr_rag.errors import InvalidInputError
from sidr_rag.eval.costs import Cost, Seconds
from sidr_rag.eval.measures import PerQuery
from sidr_rag.eval.significance import Comparison, bootstrap, holm
from sidr_rag.eval.trec import Run


@dataclass(frozen=True)
class Result:
    """One search on one dataset.

    Attributes:
        run: what it found.
        values: measure -> value for each query.
        cost: None for a run that was read from a file.
    """

    run: Run
    values: PerQuery
    cost: Cost | None = None

    def mean(self, measure: str) -> float:
        """The mean over the measure's queries.

        Raises:
            InvalidInputError: if it was not measured.
        """
        if measure not in self.values:
            raise InvalidInputError(f"measure={measure!r} was not measured; there are {', '.join(self.values)}")
        return float(self.values[measure].mean())


@dataclass(frozen=True)
class ComparedPair:
    """Search `a` against search `b` by one measure, with the p-value corrected for all comparisons made at once."""

    a: str
    b: str
    measure: str
    comparison: Comparison
    corrected_p: float


@dataclass(frozen=True)
class Report:
    """An evaluation on one dataset.

    Attributes:
        dataset: the dataset's name.
        split: which queries.
        model: the encoder's name.
        n_passages: of the corpus.
        n_queries: of the split.
        n_lost: passages that are judged relevant and not in the corpus; nothing can find them.
        measures: their names.
        results: by the search's name, in the order asked for.
        indexing: what making the bag-of-tokens index took.
        encoded: passages that were encoded on the way.
        encoding: what that took.
    """

    dataset: str
    split: str
    model: str
    n_passages: int
    n_queries: int
    n_lost: int
    measures: tuple[str, ...]
    results: Mapping[str, Result]
    indexing: Seconds
    encoded: int
    encoding: Seconds
    comparisons: Sequence[ComparedPair] = field(default_factory=list)

    def compare(
        self,
        pairs: Sequence[tuple[str, str]],
        measures: Sequence[str] | None = None,
        *,
        samples: int = 10_000,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> list[ComparedPair]:
        """Paired bootstrap of pairs of searches (`a`, `b`), with Holm's correction over all that is compared.

        Args:
            pairs: names of searches; the difference is of the first minus the second.
            measures: None for all that were measured.
            samples: of the bootstrap.
            confidence: of the intervals.
            seed: of the draws.

        Raises:
            InvalidInputError: for a search or measure that is not in this report.
        """
        check_pairs(pairs, self.results)
        names = self.measures if measures is None else tuple(measures)
        for name in names:
            if name not in self.measures:
                raise InvalidInputError(f"measures: {name!r} was not measured; there are {', '.join(self.measures)}")
        compared = [
            (
                a,
                b,
                name,
                bootstrap(self._values(a, name), self._values(b, name), **_settings(samples, confidence, seed)),
            )
            for name in names
            for a, b in pairs
        ]
        corrected = holm([c.p_value for *_, c in compared])
        return [ComparedPair(*row, p) for row, p in zip(compared, corrected, strict=True)]

    def to_mapping(self, *, per_query: bool = False) -> dict[str, Any]:
        """JSON values: facts, means and costs; with `per_query`, the values of single queries too."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "model": self.model,
            "passages": self.n_passages,
            "queries": self.n_queries,
            "relevant_passages_not_in_corpus": self.n_lost,
            "indexing_seconds": asdict(self.indexing),
            "encoded_passages": self.encoded,
            "encoding_seconds": asdict(self.encoding),
            "searches": {name: self._result(name, per_query) for name in self.results},
            "comparisons": [
                {"a": c.a, "b": c.b, "measure": c.measure, **asdict(c.comparison), "corrected_p": c.corrected_p}
                for c in self.comparisons
            ],
        }

    def _values(self, name: str, measure: str) -> Any:
        return self.results[name].values[measure]

    def _result(self, name: str, per_query: bool) -> dict[str, Any]:
        result = self.results[name]
        value: dict[str, Any] = {"measures": {m: result.mean(m) for m in self.measures}}
        if result.cost is not None:
            value["cost"] = {**asdict(result.cost), "texts": result.cost.texts}
        if per_query:
            value["per_query"] = {m: v.tolist() for m, v in result.values.items()}
        return value


def check_pairs(pairs: Sequence[tuple[str, str]], names: Mapping[str, Any]) -> None:
    """Refuse comparisons of searches that are not there.

    Raises:
        InvalidInputError: naming the search.
    """
    for pair in pairs:
        for name in pair:
            if name not in names:
                raise InvalidInputError(f"compare: {name!r} is not among the searches: {', '.join(names)}")


def _settings(samples: int, confidence: float, seed: int) -> dict[str, Any]:
    return {"samples": samples, "confidence": confidence, "seed": seed}
