from __future__ import annotations

from typing import Any

import llama_index.core
import llama_index.core.vector_stores.utils
import pytest
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.retrievers.sidr.filters import all_of, engine_filter
from packaging.version import Version

from sidr_rag import InvalidTypeError
from sidr_rag.search.filters import filter_mask, parse_filter

NODES: list[dict[str, Any]] = [
    {"page": 1, "owner": "amber", "tags": ["a", "b"], "note": "Copper wire"},
    {"page": 5, "owner": "Amber", "tags": ["b"], "note": "copper pipe"},
    {"page": 9, "owner": "ruby", "tags": [], "note": ""},
    {"tags": None},
    {},
]


def matching(filters: MetadataFilters | dict[str, Any] | None) -> list[int]:
    mask = filter_mask(parse_filter(engine_filter(filters)), NODES)
    return [i for i, passes in enumerate(mask) if passes]


def of_llama_index(filters: MetadataFilters) -> list[int]:
    """What LlamaIndex's own stores match; before 0.14.25 they knew fewer operators."""
    if Version(llama_index.core.__version__) < Version("0.14.25"):
        return matching(filters)
    passes = llama_index.core.vector_stores.utils.build_metadata_filter_fn(lambda i: NODES[int(i)], filters)
    return [i for i in range(len(NODES)) if passes(str(i))]


CASES = [
    (FilterOperator.EQ, "page", 5, [1]),
    (FilterOperator.NE, "page", 5, [0, 2, 3, 4]),
    (FilterOperator.GT, "page", 5, [2]),
    (FilterOperator.GTE, "page", 5, [1, 2]),
    (FilterOperator.LT, "page", 5, [0]),
    (FilterOperator.LTE, "page", 5, [0, 1]),
    (FilterOperator.IN, "owner", ["amber", "ruby"], [0, 2]),
    (FilterOperator.NIN, "owner", ["amber", "ruby"], [1, 3, 4]),
    (FilterOperator.ANY, "tags", ["a", "z"], [0]),
    (FilterOperator.ALL, "tags", ["a", "b"], [0]),
    (FilterOperator.CONTAINS, "tags", "b", [0, 1]),
    (FilterOperator.TEXT_MATCH, "note", "copper", [1]),
    (FilterOperator.TEXT_MATCH_INSENSITIVE, "note", "copper", [0, 1]),
    (FilterOperator.IS_EMPTY, "tags", None, [2, 3, 4]),
]


def test_every_operator_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(FilterOperator)


@pytest.mark.parametrize(("operator", "key", "value", "expected"), CASES)
def test_operators_match_what_llama_indexs_own_stores_match(
    operator: FilterOperator, key: str, value: Any, expected: list[int]
) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])
    assert matching(filters) == expected == of_llama_index(filters)


def test_text_match_is_not_for_lists() -> None:
    only = MetadataFilter(key="tags", value="b", operator=FilterOperator.TEXT_MATCH)
    assert matching(MetadataFilters(filters=[only])) == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [(FilterCondition.AND, [0]), (FilterCondition.OR, [0, 1]), (FilterCondition.NOT, [2, 3, 4]), (None, [0])],
)
def test_conditions(condition: FilterCondition | None, expected: list[int]) -> None:
    parts = [
        MetadataFilter(key="owner", value="amber"),
        MetadataFilter(key="page", value=5, operator=FilterOperator.LTE),
    ]
    filters = MetadataFilters(filters=parts, condition=condition)
    assert matching(filters) == expected == of_llama_index(filters)


def test_nested_filters() -> None:
    inner = MetadataFilters(
        filters=[MetadataFilter(key="owner", value="amber"), MetadataFilter(key="owner", value="ruby")],
        condition=FilterCondition.OR,
    )
    outer = MetadataFilters(filters=[inner, MetadataFilter(key="page", value=1)])
    assert matching(outer) == [0]
    assert matching(MetadataFilters(filters=[outer], condition=FilterCondition.NOT)) == [1, 2, 3, 4]


@pytest.mark.parametrize("condition", list(FilterCondition))
def test_no_filters_match_everything(condition: FilterCondition) -> None:
    filters = MetadataFilters(filters=[], condition=condition)
    assert matching(filters) == [0, 1, 2, 3, 4] == of_llama_index(filters)
    assert matching(None) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("key", ["and", "path", "eq", "a.b"])
def test_keys_are_taken_literally(key: str) -> None:
    condition = parse_filter(engine_filter(MetadataFilters(filters=[MetadataFilter(key=key, value="x")])))
    assert filter_mask(condition, [{key: "x"}, {}]).tolist() == [True, False]


def test_the_engines_own_language_is_taken_as_it_is() -> None:
    assert matching({"owner": "amber"}) == [0]
    assert matching({"tags": {"exists": True}}) == [0, 1, 2, 3]


def test_all_of_joins_what_is_given() -> None:
    assert all_of(None, None) is None
    assert all_of({"a": 1}, None, {"b": 2}) == {"and": [{"a": 1}, {"b": 2}]}


def test_another_type_is_named() -> None:
    with pytest.raises(InvalidTypeError, match="filters is a list; give MetadataFilters, a mapping, or None"):
        engine_filter([MetadataFilter(key="a", value=1)])  # type: ignore[arg-type]
