"""Any order of calls against a plain dictionary: a state machine over a store, its copies and its readers."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from benchmarks.reliability.model import Ask, Doc, Model, add_docs, answers, passages_differ, searches_differ
from benchmarks.reliability.parts import Parts
from sidr_rag import SiDR
from sidr_rag.errors import InvalidInputError, ReadOnlyError, StoreLockedError

_IDS = st.integers(0, 30).map(lambda n: f"p{n}")
_WORDS = st.sampled_from(["amber", "coral", "heron", "zephyr", "naïve", "漢字", "e-mail", "x²"])
_TEXTS = st.lists(_WORDS, max_size=6).map(" ".join)
_METADATA = st.fixed_dictionaries(
    {}, optional={"owner": st.sampled_from(["a", "b", "c"]), "page": st.integers(0, 9), "tags": st.lists(_WORDS)}
)
_DOCS = st.builds(Doc, _TEXTS, st.none() | _WORDS, _METADATA)
_ITEMS = st.lists(st.tuples(_IDS, _DOCS), max_size=12)
_MANY = st.lists(st.tuples(st.integers(0, 200).map(lambda n: f"m{n}"), _DOCS), min_size=20, max_size=80)


class StoreMachine(RuleBasedStateMachine):
    """A store in a folder (or in memory), one copy, and one reader of the same folder."""

    parts: Parts
    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=_fast_folder()))
        self.model = Model()
        self.copied: Model | None = None
        self.reader: SiDR | None = None
        self.sidr: SiDR

    @initialize()
    def make(self) -> None:
        """An empty store."""
        self.sidr = self.parts.memory() if self.in_memory else self.parts.create(self.root / "store")

    def teardown(self) -> None:
        """Close and remove everything; the last state must open again."""
        if hasattr(self, "sidr"):
            self.check(self.sidr)
            self.sidr.close()
            if not self.in_memory:
                with self.parts.open(self.root / "store") as sidr:
                    self.check(sidr)
        if self.reader is not None:
            self.reader.close()
        shutil.rmtree(self.root)

    def check(self, sidr: SiDR) -> None:
        """Everything that a store can be asked."""
        asks = (Ask("amber coral"), Ask("漢字 naive", k=3), Ask("heron", filter={"owner": {"ne": "a"}}))
        fault = passages_differ(sidr, self.model) or searches_differ(sidr, self.model, asks, self.parts)
        assert fault is None, fault

    # Changes

    @rule(items=_ITEMS, on_conflict=st.sampled_from(["replace", "replace", "skip"]))
    def add(self, items: list[tuple[str, Doc]], on_conflict: Any) -> None:
        """New and replaced passages, some twice in one call."""
        add_docs(self.sidr, items, on_conflict)
        self.model.add(items, on_conflict)

    @rule(items=_MANY)
    def add_many(self, items: list[tuple[str, Doc]]) -> None:
        """Enough for merges to come due."""
        add_docs(self.sidr, items)
        self.model.add(items)

    @rule(items=_ITEMS)
    def add_without_replacing(self, items: list[tuple[str, Doc]]) -> None:
        """An id that exists, or that is given twice, refuses the whole call."""
        ids = [i for i, _ in items]
        refused = len(set(ids)) < len(ids) or bool(set(ids) & set(self.model.docs))
        try:
            add_docs(self.sidr, items, "error")
        except InvalidInputError:
            assert refused, "ids were refused that are free"
            return
        assert not refused, "ids that exist were not refused"
        self.model.add(items)

    @rule(items=_ITEMS, position=st.integers(0, 12))
    def add_with_a_fault(self, items: list[tuple[str, Doc]], position: int) -> None:
        """A stream that breaks leaves nothing of the call."""

        class BrokenError(Exception):
            pass

        def stream() -> Any:
            for i, (_, doc) in enumerate(items):
                if i == position:
                    break
                yield doc.text
            raise BrokenError

        try:
            self.sidr.add(stream())
        except BrokenError:
            return
        raise AssertionError("the fault was swallowed")

    @rule(ids=st.lists(_IDS, max_size=10))
    def delete(self, ids: list[str]) -> None:
        """Some of them exist."""
        assert self.sidr.delete(ids) == self.model.delete(ids)

    @precondition(lambda self: self.model.docs)
    @rule(share=st.floats(0.1, 1.0))
    def delete_share(self, share: float) -> None:
        """The oldest passages."""
        ids = list(self.model.docs)[: max(1, int(len(self.model.docs) * share))]
        assert self.sidr.delete(ids) == len(ids)
        self.model.delete(ids)

    @rule(purge=st.booleans())
    def compact(self, purge: bool) -> None:
        """Nothing changes but the files."""
        if purge and self.reader is not None:
            self.reader.close()
            self.reader = None
        self.sidr.compact(purge=purge)

    # Copies and other objects

    @rule()
    def save(self) -> None:
        """Over the earlier copy."""
        self.sidr.save(self.root / "copy")
        self.copied = self.model.copy()

    @precondition(lambda self: self.copied is not None)
    @rule()
    def look_at_copy(self) -> None:
        """A copy is what was saved, whatever came after."""
        assert self.copied is not None
        with self.parts.open(self.root / "copy", read_only=True) as sidr:
            fault = passages_differ(sidr, self.copied)
        assert fault is None, fault

    @precondition(lambda self: not self.in_memory)
    @rule()
    def reopen(self) -> None:
        """Another object, the same store."""
        self.sidr.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            self.sidr = self.parts.open(self.root / "store")

    @precondition(lambda self: not self.in_memory)
    @rule(query=_TEXTS)
    def read_elsewhere(self, query: str) -> None:
        """A reader sees the last commit, and cannot write."""
        if self.reader is None:
            self.reader = self.parts.open(self.root / "store", read_only=True)
        ask = [Ask(query)]
        assert answers(self.reader, ask) == answers(self.sidr, ask)
        assert len(self.reader) == len(self.model.docs)
        try:
            self.reader.add(["amber"])
        except ReadOnlyError:
            return
        raise AssertionError("a reader wrote")

    @precondition(lambda self: not self.in_memory and self.model.docs)
    @rule()
    def second_writer(self) -> None:
        """A second writer is refused while the first holds the store, and changes nothing."""
        self.sidr.add(["amber"], ids=["held"])
        self.model.add([("held", Doc("amber", None, {}))])
        with self.parts.open(self.root / "store") as other:
            try:
                other.add(["coral"])
            except StoreLockedError:
                return
            raise AssertionError("two writers")

    # Questions

    @rule(query=_TEXTS, k=st.integers(0, 40), owner=st.none() | st.sampled_from(["a", "b", "z"]))
    def search(self, query: str, k: int, owner: str | None) -> None:
        """To the bit what a fresh index answers; with a filter, only what it lets through."""
        condition = None if owner is None else {"owner": owner}
        fault = searches_differ(self.sidr, self.model, [Ask(query, k, condition)], self.parts)
        assert fault is None, fault
        for passage_id, _ in answers(self.sidr, [Ask(query, k, condition)])[0]:
            assert owner is None or self.model.docs[passage_id].metadata.get("owner") == owner

    @rule(query=_WORDS, page=st.integers(0, 9))
    def search_pages(self, query: str, page: int) -> None:
        """Ranges and negation, against a plain evaluation."""
        for condition, holds in (
            ({"page": {"gte": page}}, lambda m: "page" in m and m["page"] >= page),
            ({"not": {"page": page}}, lambda m: m.get("page") != page),
            ({"tags": {"contains": "coral"}}, lambda m: "coral" in m.get("tags", ())),
        ):
            everything = {i for i, _ in answers(self.sidr, [Ask(query)])[0]}
            found = {i for i, _ in answers(self.sidr, [Ask(query, filter=condition)])[0]}
            assert found == {i for i in everything if holds(self.model.docs[i].metadata)}

    @rule(ids=st.lists(_IDS, max_size=5))
    def get(self, ids: list[str]) -> None:
        """In the order asked for, missing ones left out."""
        assert [p.id for p in self.sidr.get(ids)] == [i for i in ids if i in self.model.docs]

    @invariant()
    def length(self) -> None:
        """The number of passages, at all times."""
        if hasattr(self, "sidr"):
            assert len(self.sidr) == len(self.model.docs)


def run_machine(parts: Parts, *, examples: int, steps: int, in_memory: bool) -> dict[str, int]:
    """Run the machine; a failure prints the calls that lead to it.

    Returns:
        How many runs there were, and how many steps.
    """
    counts = {"runs": 0, "steps": 0}

    class Machine(StoreMachine):
        @invariant()
        def count(self) -> None:
            counts["steps"] += 1

        def teardown(self) -> None:
            counts["runs"] += 1
            super().teardown()

    Machine.parts, Machine.in_memory = parts, in_memory
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=profile)
    return counts


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
