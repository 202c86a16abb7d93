"""Filters by column give what the filter says of each row's metadata, after joining and saving too."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.errors import IndexFormatError
from sidr_rag.index.columns import Column, Columns
from sidr_rag.index.haystack import Haystack
from sidr_rag.search.filters import filter_mask, parse_filter

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, 2**53, 2**53 + 1, 2**70, 1e300]),
    st.sampled_from(["", "a", "b", "A", "ab", "é", "\ud83d\udc4d", "\ud83d"]),
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.sampled_from(["x", "y"]), SCALARS, max_size=2)
)
METADATA = st.dictionaries(st.sampled_from(["p", "q", "and", "\ud800"]), VALUES, max_size=3)
ORDERED = st.one_of(st.integers(-3, 3), st.sampled_from([2.5, 2**53 + 1, 2**70, "a", "é"]))
CONDITIONS = st.one_of(
    st.builds(lambda op, v: {op: v}, st.sampled_from(["eq", "ne", "contains"]), VALUES),
    st.builds(lambda op, v: {op: v}, st.sampled_from(["gt", "gte", "lt", "lte"]), ORDERED),
    st.builds(lambda op, v: {op: v}, st.sampled_from(["in", "nin", "any", "all"]), st.lists(SCALARS, max_size=3)),
    st.builds(lambda op, v: {op: v}, st.sampled_from(["exists", "is_empty"]), st.booleans()),
    st.builds(lambda v: {"text_match": v}, st.sampled_from(["", "a", "É"])),
)
LEAVES = st.builds(
    lambda path, condition: {"path": path, **condition},
    st.sampled_from([["p"], ["q"], ["and"], ["\ud800"], ["p", "x"], ["nowhere"]]),
    CONDITIONS,
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda parts: {"and": parts}),
        st.lists(inner, max_size=2).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(METADATA, max_size=8), FILTERS)
def test_columns_agree_with_the_filter_itself(metadatas, condition) -> None:
    parsed = parse_filter(condition)
    assert Columns.of(metadatas).mask(parsed).tolist() == filter_mask(parsed, metadatas).tolist()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(METADATA, st.booleans(), st.integers(0, 2)), max_size=9), FILTERS)
def test_joining_keeps_the_kept_rows(rows, condition) -> None:
    groups = [[(m, keep) for m, keep, group in rows if group == g] for g in range(3)]
    parts = [(Columns.of([m for m, _ in g]), np.array([keep for _, keep in g], dtype=np.bool_)) for g in groups]
    kept = [m for g in groups for m, keep in g if keep]
    joined = Columns.joined(parts)
    parsed = parse_filter(condition)
    assert joined.n_rows == len(kept)
    assert joined.mask(parsed).tolist() == filter_mask(parsed, kept).tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(METADATA, max_size=6), FILTERS)
def test_arrays_give_the_same_columns(metadatas, condition) -> None:
    columns = Columns.of(metadatas)
    again = Columns.of_arrays(columns.arrays(), len(metadatas))
    parsed = parse_filter(condition)
    assert again.mask(parsed).tolist() == columns.mask(parsed).tolist()


def test_codes_are_as_narrow_as_they_can_be() -> None:
    few = Columns.of([{"k": i % 200} for i in range(300)])
    many = Columns.of([{"k": i} for i in range(300)])
    assert few.by_key["k"].codes.dtype == np.uint8
    assert many.by_key["k"].codes.dtype == np.uint16
    assert few.by_key["k"].n_values == 200


def test_values_that_are_not_as_many_as_the_codes_are_refused() -> None:
    column = Column(np.array([1, 2], dtype=np.uint8), 2, json.dumps(["only one"]).encode())
    with pytest.raises(IndexFormatError, match="2 values"):
        column.mask(parse_filter({"k": "x"}))


@pytest.mark.parametrize("part", ["codes", "n_values"])
def test_arrays_that_do_not_fit_are_refused(part) -> None:
    arrays = Columns.of([{"k": "a"}, {"k": "b"}]).arrays()
    harm = {"codes": np.array([1, 3], dtype=np.uint8), "n_values": np.array([1], dtype=np.uint32)}
    arrays[f"meta.0.{part}"] = harm[part]
    with pytest.raises(ValueError, match="metadata codes"):
        Columns.of_arrays(arrays, 2)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(alphabet="abA\0é", max_size=4), max_size=30), st.text(alphabet="abA\0é", min_size=1, max_size=3)
)
def test_a_haystack_knows_which_strings_hold_a_part(strings, needle) -> None:
    assert Haystack(strings).holding(needle).tolist() == [needle in s for s in strings]


@pytest.mark.parametrize("condition", [{"text_match": "PAGE-1"}, {"contains": "page-1"}, {"contains": 3}])
def test_many_values_are_searched_together(condition) -> None:
    values = [f"Page-{i}" if i % 3 else f"page-{i}" for i in range(1500)]
    for metadatas in (
        [{"k": v} for v in values],
        [{"k": v} for v in [*values, None, True, 3, ["page-1"], [3]]] + [{}],
    ):
        parsed = parse_filter({"k": condition})
        assert Columns.of(metadatas).mask(parsed).tolist() == filter_mask(parsed, metadatas).tolist()
