"""What searches cost: texts that go through an encoder, their tokens, and the seconds of each stage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any

from sidr_rag.fork_lock import ForkLock

STAGES = ("encode", "first_stage", "embed", "second_stage", "fetch")


@dataclass
class Costs:
    """What was spent; sums of it can be added and subtracted.

    The paper's cost is `texts`: queries and passages that an encoder embedded. A query that two encoders embed counts
    twice, as in the paper's table; a passage whose embedding was remembered counts as a hit instead.

    Attributes:
        searches: how many queries were answered.
        queries: texts of queries that were embedded.
        passages: texts of passages that were embedded.
        cache_hits: embeddings of passages that were there.
        pairs: pairs of query and passage that a cross-encoder, a callable or an object of the caller's scored.
        query_tokens: tokens of the queries that were embedded, special ones left out.
        passage_tokens: the same of passages.
        seconds: of wall clock by stage: "encode" (queries), "first_stage", "embed" (passages), "second_stage" (what it
            takes beside embedding) and "fetch" (reading the passages). With several threads they may add up to more
            than the time that passed.
    """

    searches: int = 0
    queries: int = 0
    passages: int = 0
    cache_hits: int = 0
    pairs: int = 0
    query_tokens: int = 0
    passage_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    @property
    def texts(self) -> int:
        """Texts that were embedded, queries and passages: the cost of the paper's table."""
        return self.queries + self.passages

    @property
    def tokens(self) -> int:
        """Tokens that were embedded."""
        return self.query_tokens + self.passage_tokens

    def share(self, n_passages: int) -> float:
        """`texts` as a part of a corpus of so many passages: the ratio of the paper's table."""
        return self.texts / n_passages if n_passages else 0.0

    def add(self, other: Costs, sign: int = 1) -> None:
        """Add another's figures to these."""
        for item in fields(self):
            if item.name != "seconds":
                setattr(self, item.name, getattr(self, item.name) + sign * getattr(other, item.name))
        for stage, value in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + sign * value

    def __add__(self, other: Costs) -> Costs:
        total = self.copy()
        total.add(other)
        return total

    def __sub__(self, other: Costs) -> Costs:
        total = self.copy()
        total.add(other, -1)
        return total

    def copy(self) -> Costs:
        """The same figures, apart from these."""
        copied = Costs()
        copied.add(self)
        return copied

    def to_dict(self) -> dict[str, Any]:
        """JSON values, `texts` and `tokens` included."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "seconds"}
        return {**values, "texts": self.texts, "tokens": self.tokens, "seconds": dict(self.seconds)}

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(title="costs", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for name, value in self.to_dict().items():
            if name != "seconds":
                table.add_row(name.replace("_", " "), f"{value:,}")
        for stage, value in self.seconds.items():
            table.add_row(f"seconds: {stage.replace('_', ' ')}", f"{value:.3f}")
        return table


class Ledger:
    """The totals of one store, and the accounts that are open for some calls; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._total = Costs()
        # A context variable follows a call into `asyncio.to_thread`, and no call of another thread is booked here.
        self._accounts: ContextVar[tuple[Costs, ...]] = ContextVar("accounts", default=())

    def total(self) -> Costs:
        """A copy of the totals so far."""
        with self._lock:
            return self._total.copy()

    @contextlib.contextmanager
    def measured(self) -> Iterator[Costs]:
        """Costs of the calls made inside the block, by this thread or task; complete when a call has returned."""
        account = Costs()
        token = self._accounts.set((*self._accounts.get(), account))
        try:
            yield account
        finally:
            self._accounts.reset(token)

    @contextlib.contextmanager
    def booking(self) -> Iterator[Costs]:
        """Costs of one call, booked at its end, also if it fails; encoders note their tokens meanwhile."""
        costs = Costs()
        token = _current.set(costs)
        try:
            yield costs
        finally:
            _current.reset(token)
            with self._lock:
                self._total.add(costs)
                for account in self._accounts.get():
                    account.add(costs)


_current: ContextVar[Costs | None] = ContextVar("costs", default=None)


def note(**counts: int) -> None:
    """Add counts to the call that is being booked, if any."""
    costs = _current.get()
    if costs is not None:
        for name, n in counts.items():
            setattr(costs, name, getattr(costs, name) + n)


def note_read(side: str, texts: int, tokens: int = 0) -> None:
    """Add texts that an encoder reads now, once for all its heads, to the call that is being booked.

    Args:
        side: "query" or "passage".
        texts: how many.
        tokens: theirs, special ones left out.
    """
    note(**{"queries" if side == "query" else "passages": texts, f"{side}_tokens": tokens})


@contextlib.contextmanager
def clocked(stage: str) -> Iterator[None]:
    """Add the block's wall clock to a stage; a stage inside another one's block is taken off the outer one."""
    costs = _current.get()
    if costs is None:
        yield
        return
    start, inner = time.perf_counter(), sum(costs.seconds.values())
    try:
        yield
    finally:
        spent = time.perf_counter() - start
        costs.seconds[stage] += max(0.0, spent - (sum(costs.seconds.values()) - inner))
