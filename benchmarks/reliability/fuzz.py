"""Any text, id, metadata and filter: stored exactly, found again, or refused by one of this library's errors."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.reliability.model import Ask, Doc, Model, answers, passages_differ, searches_differ
from benchmarks.reliability.parts import Parts
from sidr_rag import SiDR
from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.search.filters import OPERATORS

NASTY = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "inputs" / "nasty_strings.json"

_ANY_TEXT = st.text(st.characters(), max_size=60)  # lone surrogates, NUL and all
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_ANY_TEXT, inner, max_size=4),
    max_leaves=8,
)
_METADATA = st.dictionaries(_ANY_TEXT, _JSON, max_size=4)
_NOT_JSON = st.one_of(
    st.just(float("nan")),
    st.just(float("inf")),
    st.binary(max_size=3),
    st.just({1, 2}),
    st.just(object()),
    st.just({1: 2}),
)


def nasty_texts() -> list[str]:
    """The texts of the public cases; none where they are not on this machine."""
    if not NASTY.exists():
        return []
    return [str(text) for text in json.loads(NASTY.read_text(encoding="utf-8"))["texts"]]


def _texts() -> st.SearchStrategy[str]:
    nasty = nasty_texts()
    return (st.sampled_from(nasty) | _ANY_TEXT) if nasty else _ANY_TEXT


def run_fuzz(parts: Parts, examples: int) -> dict[str, int]:
    """Try `examples` stores of passages, filters and faulty arguments each.

    Returns:
        How many inputs were tried.
    """
    counts = {"stores": 0, "passages": 0, "filters": 0, "filters accepted": 0, "faulty arguments": 0}
    profile = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    for trial in (_passages, _filters, _faults):
        trial(parts, counts, profile)()
    return counts


def _passages(parts: Parts, counts: dict[str, int], profile: settings) -> Callable[[], None]:
    items = st.lists(st.tuples(_texts(), _texts(), st.none() | _texts(), _METADATA), max_size=8)

    @profile
    @given(items, _texts())
    def trial(rows: list[tuple[str, str, str | None, dict[str, Any]]], query: str) -> None:
        model = Model()
        model.add((passage_id, Doc(text, title, metadata)) for passage_id, text, title, metadata in rows)
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
            folder = Path(name)
            with parts.create(folder / "store") as sidr:
                sidr.add(
                    [r[1] for r in rows],
                    ids=[r[0] for r in rows],
                    titles=[r[2] for r in rows],
                    metadatas=[r[3] for r in rows],
                )
                _check(sidr, model, query, parts)
                sidr.save(folder / "copy")
            for path in ("store", "copy"):
                with parts.open(folder / path, read_only=path == "copy") as sidr:
                    _check(sidr, model, query, parts)
        counts["stores"] += 1
        counts["passages"] += len(rows)

    return trial


def _check(sidr: SiDR, model: Model, query: str, parts: Parts) -> None:
    asks = [Ask(query), *(Ask(doc.text, k=3) for doc in list(model.docs.values())[:2])]
    fault = passages_differ(sidr, model) or searches_differ(sidr, model, asks, parts)
    assert fault is None, fault
    for passage_id, doc in model.docs.items():
        found = answers(sidr, [Ask(doc.text)])[0]
        bag = sidr.bags([doc.text]).dims
        assert (passage_id in {i for i, _ in found}) == bool(len(bag)), "a passage is not found by its own text"


def _filters(parts: Parts, counts: dict[str, int], profile: settings) -> Callable[[], None]:
    keys = st.sampled_from(["a", "b", "and", "eq", ""]) | _ANY_TEXT
    operand = _JSON | st.lists(_JSON, max_size=3)
    leaf = st.dictionaries(
        keys, operand | st.dictionaries(st.sampled_from(sorted(OPERATORS)), operand, max_size=2), max_size=2
    )
    condition = st.recursive(
        leaf,
        lambda inner: (
            st.fixed_dictionaries({"and": st.lists(inner, max_size=3)})
            | st.fixed_dictionaries({"or": st.lists(inner, max_size=3)})
            | st.fixed_dictionaries({"not": inner})
        ),
        max_leaves=4,
    )
    metadata = st.dictionaries(keys, _JSON, max_size=3)

    @profile
    @given(st.lists(metadata, max_size=6), condition)
    def trial(metadatas: list[dict[str, Any]], wanted: dict[str, Any]) -> None:
        counts["filters"] += 1
        with parts.memory() as sidr:
            sidr.add(["amber"] * len(metadatas), ids=[str(i) for i in range(len(metadatas))], metadatas=metadatas)
            try:
                found = {i for i, _ in answers(sidr, [Ask("amber", filter=wanted)])[0]}
                others = {i for i, _ in answers(sidr, [Ask("amber", filter={"not": wanted})])[0]}
            except (InvalidInputError, InvalidTypeError):
                return
            counts["filters accepted"] += 1
            assert not found & others, "a passage matches a filter and its negation"
            assert found | others == {str(i) for i in range(len(metadatas))}, "a passage matches neither"

    return trial


def _faults(parts: Parts, counts: dict[str, int], profile: settings) -> Callable[[], None]:
    broken = st.one_of(
        st.tuples(st.just("texts"), st.none() | st.integers() | st.binary() | st.lists(_ANY_TEXT)),
        st.tuples(st.just("ids"), st.integers() | st.binary() | st.floats()),
        st.tuples(st.just("titles"), st.integers() | st.binary()),
        st.tuples(
            st.just("metadatas"),
            st.integers() | st.text(min_size=1) | st.dictionaries(_ANY_TEXT, _NOT_JSON, min_size=1),
        ),
    )
    sidr = parts.memory()
    sidr.add(["amber"], ids=["kept"])

    @profile
    @given(st.integers(0, 4), broken)
    def trial(position: int, fault: tuple[str, Any]) -> None:
        counts["faulty arguments"] += 1
        name, value = fault
        columns: dict[str, Any] = {"texts": ["coral"] * 5, "ids": list("abcde"), "titles": [None] * 5}
        columns["metadatas"] = [None] * 5
        columns[name][position] = value
        texts = columns.pop("texts")
        try:
            sidr.add(texts, **columns)
        except (InvalidInputError, InvalidTypeError) as e:
            message = str(e)
        else:
            raise AssertionError(f"{name}[{position}] of type {type(value).__name__} was accepted")
        assert "coral" not in message, "a message holds a text"
        assert sidr.ids() == ["kept"], "something of a refused call was stored"

    return trial
