from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.search import Filter, filter_mask, parse_filter
from sidr_rag.search.filters import OPERATORS


def accepts(filter, metadata):
    parsed = parse_filter(filter)
    assert parsed is not None
    return parsed.matches(metadata)


DOC = {
    "owner": "amber",
    "page": 3,
    "ratio": 0.5,
    "draft": True,
    "note": None,
    "tags": ["red", "blue", 3],
    "empty": [],
    "blank": "",
    "void": {},
    "zero": 0,
    "a": {"b": {"c": 7}, "list": [1, 2]},
    "a.b": "dotted",
    "title": "Straße am Fluß",
    "path": "docs/guide.md",
    "and": 1,
    "eq": "literal",
    "": "nameless",
}

TABLE = [
    # eq
    ({"owner": "amber"}, True),
    ({"owner": "Amber"}, False),
    ({"owner": {"eq": "amber"}}, True),
    ({"page": 3}, True),
    ({"page": 3.0}, True),
    ({"page": "3"}, False),
    ({"page": True}, False),
    ({"draft": True}, True),
    ({"draft": 1}, False),
    ({"zero": False}, False),
    ({"note": None}, True),
    ({"missing": None}, False),
    ({"zero": None}, False),
    ({"tags": ["red", "blue", 3]}, True),
    ({"tags": ("red", "blue", 3.0)}, True),
    ({"tags": ["blue", "red", 3]}, False),
    ({"tags": "red"}, False),
    ({"tags": ["red"]}, False),
    ({"empty": []}, True),
    ({"void": {"eq": {}}}, True),
    ({"a": {"eq": {"b": {"c": 7.0}, "list": [1, 2]}}}, True),
    ({"a": {"eq": {"b": {"c": 7}}}}, False),
    ({"": "nameless"}, True),
    # ne
    ({"owner": {"ne": "amber"}}, False),
    ({"owner": {"ne": "beryl"}}, True),
    ({"owner": {"ne": 3}}, True),
    ({"missing": {"ne": "amber"}}, True),
    ({"missing": {"ne": None}}, True),
    ({"note": {"ne": None}}, False),
    ({"draft": {"ne": 1}}, True),
    # in, nin
    ({"owner": {"in": ["beryl", "amber"]}}, True),
    ({"owner": {"in": {"beryl", "amber"}}}, True),
    ({"owner": {"in": []}}, False),
    ({"page": {"in": [1.0, 3.0]}}, True),
    ({"draft": {"in": [1]}}, False),
    ({"tags": {"in": [["red", "blue", 3]]}}, True),
    ({"tags": {"in": ["red"]}}, False),
    ({"missing": {"in": [None]}}, False),
    ({"owner": {"nin": ["beryl"]}}, True),
    ({"owner": {"nin": ["amber"]}}, False),
    ({"missing": {"nin": ["amber"]}}, True),
    ({"page": {"nin": ["3"]}}, True),
    ({"page": {"nin": []}}, True),
    # comparisons
    ({"page": {"gt": 2}}, True),
    ({"page": {"gt": 3}}, False),
    ({"page": {"gte": 3.0}}, True),
    ({"page": {"lt": 3.5}}, True),
    ({"page": {"lt": 3}}, False),
    ({"page": {"lte": 3}}, True),
    ({"page": {"gt": 2, "lt": 3}}, False),
    ({"page": {"gt": 2, "lte": 9}}, True),
    ({"page": {"gt": -math.inf}}, True),
    ({"page": {"gt": "2"}}, False),
    ({"page": {"lte": "9"}}, False),
    ({"draft": {"gt": 0}}, False),
    ({"note": {"lt": 5}}, False),
    ({"missing": {"lt": 5}}, False),
    ({"tags": {"gt": 0}}, False),
    ({"owner": {"gt": "alder"}}, True),
    ({"owner": {"lt": "Zebra"}}, False),
    ({"owner": {"gte": "amber"}}, True),
    ({"page": {"gt": np.int64(2)}}, True),
    ({"ratio": {"lte": np.float32(0.5)}}, True),
    # exists, is_empty
    ({"owner": {"exists": True}}, True),
    ({"note": {"exists": True}}, True),
    ({"missing": {"exists": True}}, False),
    ({"missing": {"exists": False}}, True),
    ({"owner": {"exists": False}}, False),
    ({"missing": {"is_empty": True}}, True),
    ({"note": {"is_empty": True}}, True),
    ({"blank": {"is_empty": True}}, True),
    ({"empty": {"is_empty": True}}, True),
    ({"void": {"is_empty": True}}, True),
    ({"zero": {"is_empty": True}}, False),
    ({"draft": {"is_empty": True}}, False),
    ({"owner": {"is_empty": False}}, True),
    ({"missing": {"is_empty": False}}, False),
    # contains
    ({"tags": {"contains": "red"}}, True),
    ({"tags": {"contains": "re"}}, False),
    ({"tags": {"contains": 3.0}}, True),
    ({"tags": {"contains": True}}, False),
    ({"owner": {"contains": "mbe"}}, True),
    ({"owner": {"contains": "MBE"}}, False),
    ({"owner": {"contains": 3}}, False),
    ({"page": {"contains": 3}}, False),
    ({"missing": {"contains": "red"}}, False),
    # any, all
    ({"tags": {"any": ["green", "blue"]}}, True),
    ({"tags": {"any": ["green"]}}, False),
    ({"tags": {"any": []}}, False),
    ({"owner": {"any": ["amber"]}}, False),
    ({"missing": {"any": ["red"]}}, False),
    ({"tags": {"all": ["red", 3.0]}}, True),
    ({"tags": {"all": ["red", "green"]}}, False),
    ({"tags": {"all": []}}, True),
    ({"owner": {"all": []}}, False),
    ({"missing": {"all": []}}, False),
    # text_match
    ({"owner": {"text_match": "AMB"}}, True),
    ({"title": {"text_match": "STRASSE"}}, True),
    ({"owner": {"text_match": ""}}, True),
    ({"owner": {"text_match": "beryl"}}, False),
    ({"tags": {"text_match": "red"}}, False),
    ({"missing": {"text_match": "a"}}, False),
    # logic
    ({}, True),
    ({"and": []}, True),
    ({"or": []}, False),
    ({"not": {}}, False),
    ({"owner": "amber", "page": 3}, True),
    ({"owner": "amber", "page": 4}, False),
    ({"and": [{"owner": "amber"}, {"page": {"gt": 2}}]}, True),
    ({"or": [{"owner": "beryl"}, {"page": {"gt": 2}}]}, True),
    ({"or": ({"owner": "beryl"}, {"page": 9})}, False),
    ({"not": {"owner": "beryl"}}, True),
    ({"not": {"missing": {"gt": 3}}}, True),
    ({"not": {"not": {"owner": "amber"}}}, True),
    ({"or": [{"page": 9}], "owner": "amber"}, False),
    # keys
    ({("a", "b", "c"): 7}, True),
    ({("owner",): "amber"}, True),
    ({("a", "b", "c"): {"gte": 8}}, False),
    ({("a", "list", "0"): 1}, False),
    ({("owner", "x"): {"exists": False}}, True),
    ({"a.b": "dotted"}, True),
    ({"a.b": {"exists": True}}, True),
    ({"path": ["a", "b", "c"], "eq": 7}, True),
    ({"path": ("a", "b", "c"), "gt": 6, "lt": 7}, False),
    ({"path": ["and"], "eq": 1}, True),
    ({"path": ["eq"], "eq": "literal"}, True),
    ({"path": "docs/guide.md"}, True),
    ({"path": {"contains": "guide"}, "owner": "amber"}, True),
    ({"path": ["path"], "eq": "docs/guide.md"}, True),
]


@pytest.mark.parametrize(("filter", "expected"), TABLE)
def test_table(filter, expected):
    assert accepts(filter, DOC) is expected
    assert accepts({"not": filter}, DOC) is not expected


def test_table_covers_every_operator():
    used = {op for f, _ in TABLE for value in f.values() if isinstance(value, Mapping) for op in value}
    assert set(OPERATORS) <= used


def test_no_filter_is_none():
    assert parse_filter(None) is None


def test_integers_beyond_float_precision_compare_exactly():
    assert accepts({"n": {"gt": float(2**53)}}, {"n": 2**53 + 1})
    assert not accepts({"n": float(2**53)}, {"n": 2**53 + 1})
    assert accepts({"n": {"lt": math.inf}}, {"n": 10**400})
    assert accepts({"n": 10**5000}, {"n": 10**5000})


def test_stored_nan_matches_only_the_negatives():
    assert not accepts({"x": {"gte": 0}}, {"x": math.nan})
    assert not accepts({"x": {"lt": 0}}, {"x": math.nan})
    assert accepts({"x": {"ne": 1}}, {"x": math.nan})


def test_string_and_integer_subclasses_count_as_their_base():
    class Colour(str, Enum):
        RED = "red"

    assert accepts({"c": Colour.RED}, {"c": "red"})
    assert accepts({"c": {"in": [Colour.RED]}}, {"c": "red"})


BAD = [
    ({"page": {"$gt": 3}}, r"key 'page': unknown operator '\$gt'; allowed are eq, ne, in, nin"),
    ({"a": {"b": 3}}, r"key 'a': unknown operator 'b'.*\{'path': \['a', 'b'\]"),
    ({"page": {3: 3}}, "unknown operator of type int"),
    ({"page": {}}, "no operator given"),
    ({"path": ["a"]}, "no operator given"),
    ({"path": ["a"], "owner": "x"}, "unknown operator 'owner'"),
    ({"path": [], "eq": 1}, "a key must be a string"),
    ({"path": [1], "eq": 1}, "a key must be a string.*got list"),
    ({"path": "a", "eq": 3}, "operator 'eq' stands where a metadata key belongs"),
    ({"gt": 3}, "operator 'gt' stands where a metadata key belongs"),
    ({3: 3}, "a key must be a string.*got int"),
    ({("a", 1): 3}, "a key must be a string.*got tuple"),
    ({(): 3}, "a key must be a string"),
    ({"and": {"a": 1}}, "'and' takes a list of filters, got dict"),
    ({"or": [{"a": 1}, "x"]}, "'or' takes a list of filters, but item 1 is str"),
    ({"and": 3}, r"'and' takes a list.*\{'path': \['and'\], 'eq': ...\}"),
    ({"not": [{"a": 1}]}, "'not' takes a filter, got list"),
    ({"page": {"gt": True}}, "operator 'gt' needs a number or a string, got bool"),
    ({"page": {"gt": None}}, "operator 'gt' needs a number or a string, got NoneType"),
    ({"page": {"lte": [3]}}, "operator 'lte' needs a number or a string, got list"),
    ({"page": {"lt": math.nan}}, "operator 'lt' needs .*, got float .*not NaN"),
    ({"page": math.nan}, "operator 'eq' needs a JSON value, got float"),
    ({"page": [1, math.nan]}, "operator 'eq' needs a JSON value, got list"),
    ({"page": {"in": [{"x": [math.nan]}]}}, "operator 'in' needs a list"),
    ({"page": {"in": "abc"}}, "operator 'in' needs a list, got str"),
    ({"page": {"nin": {"a": 1}}}, "operator 'nin' needs a list, got dict"),
    ({"page": {"any": 3}}, "operator 'any' needs a list, got int"),
    ({"page": {"all": None}}, "operator 'all' needs a list, got NoneType"),
    ({"page": {"exists": 1}}, "operator 'exists' needs true or false, got int"),
    ({"page": {"is_empty": "yes"}}, "operator 'is_empty' needs true or false, got str"),
    ({"page": {"text_match": 3}}, "operator 'text_match' needs a string, got int"),
    ({"page": {"eq": b"x"}}, "operator 'eq' needs a JSON value, got bytes"),
    ({"page": object()}, "operator 'eq' needs a JSON value, got object"),
    ({"page": {"eq": {1: 2}}}, "operator 'eq' needs a JSON value, got dict"),
    ({"or": [{"fine": 1}, {"and": [{"page": {"gtt": 1}}]}]}, "unknown operator 'gtt'"),
]


@pytest.mark.parametrize(("filter", "message"), BAD)
def test_bad_filters_are_named(filter, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_filter(filter)


@pytest.mark.parametrize("filter", ["owner", 3, [{"owner": "amber"}], {"owner"}])
def test_a_filter_that_is_no_mapping(filter):
    with pytest.raises(InvalidTypeError, match=rf"filter must be a mapping.*got {type(filter).__name__}"):
        parse_filter(filter)


def test_messages_hold_no_operands():
    secret = "SECRET-4711"
    for bad in ({"k": {"exists": secret}}, {"k": {"in": secret}}, {"and": secret}, {"k": {"gt": [secret]}}):
        with pytest.raises(InvalidInputError) as caught:
            parse_filter(bad)
        assert secret not in str(caught.value)


def nested(levels, key="not"):
    node = {"a": 1}
    for _ in range(levels):
        node = {"not": node} if key == "not" else {key: [node]}
    return node


@pytest.mark.parametrize("key", ["not", "and", "or"])
def test_nesting_has_a_limit(key):
    parsed = parse_filter(nested(63, key))
    assert parsed.matches({"a": 1}) is (key != "not")
    assert parsed.key
    for levels in (64, 100_000):
        with pytest.raises(InvalidInputError, match="more than 64 levels"):
            parse_filter(nested(levels, key))


def test_deep_operands_are_refused_and_deep_stored_values_do_not_match():
    deep = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InvalidInputError, match="at most 64 levels"):
        parse_filter({"a": deep})
    assert not accepts({"a": [[]]}, {"a": deep})
    assert accepts({"a": {"ne": 3}}, {"a": deep})
    assert not accepts({"a": {"contains": 3}}, {"a": deep})


def test_a_parsed_filter_does_not_follow_later_changes():
    operand = ["amber"]
    parsed = parse_filter({"owner": {"in": operand}})
    operand.append("beryl")
    assert not parsed.matches({"owner": "beryl"})


def test_mask():
    metadatas = [{"page": 1}, None, {"page": 5}, {}]
    mask = filter_mask(parse_filter({"page": {"gt": 2}}), iter(metadatas))
    assert mask.dtype == np.bool_
    assert mask.tolist() == [False, False, True, False]
    assert filter_mask(None, metadatas).tolist() == [True] * 4
    assert filter_mask(parse_filter({"page": {"ne": 1}}), metadatas).tolist() == [False, True, True, True]
    assert filter_mask(parse_filter({}), []).tolist() == []


SAME_KEY = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, {"a": {"eq": 1.0}}),
    ({"a": 1}, {"path": ["a"], "eq": 1}),
    ({("a", "b"): 1}, {"path": ["a", "b"], "eq": 1}),
    ({"a": {"in": [1, 2]}}, {"a": {"in": (2, 1, 1)}}),
    ({"or": [{"a": 1}, {"b": 2}]}, {"or": [{"b": 2}, {"a": 1}, {"b": 2}]}),
    ({"and": [{"a": 1}, {"b": 2}]}, {"a": 1, "b": 2}),
    ({"a": {"text_match": "X"}}, {"a": {"text_match": "x"}}),
    ({"a": {"eq": {"x": 1, "y": [2]}}}, {"a": {"eq": {"y": (2,), "x": 1.0}}}),
]
DIFFERENT_KEYS = [
    {"a": 1},
    {"a": "1"},
    {"a": True},
    {"a": None},
    {"a": "null"},
    {"a": [1]},
    {"a": {"in": [1]}},
    {"a": {"any": [1]}},
    {"a": {"in": [[1]]}},
    {"a": {"ne": 1}},
    {"a": 1.5},
    {"a": 17},
    {"a": "11"},
    {"a.b": 1},
    {("a", "b"): 1},
    {"a,b": 1},
    {"a": 1, "b": 1},
    {"or": [{"a": 1}, {"b": 1}]},
    {"not": {"a": 1}},
    {"a": "x,y"},
    {"a": ["x", "y"]},
    {"a": ["x,y"]},
    {"a": {"eq": {}}},
    {"a": []},
    {"a": ""},
    {"a": {"in": []}},
    {"a": {"eq": {"x": 1}}},
    {"a": "\ud800"},
    {"a": 10**5000},
    {"a": math.inf},
    {},
    {"or": []},
]


@pytest.mark.parametrize(("one", "other"), SAME_KEY)
def test_equal_filters_have_equal_keys(one, other):
    assert parse_filter(one).key == parse_filter(other).key


def test_different_filters_have_different_keys():
    keys = [parse_filter(filter).key for filter in DIFFERENT_KEYS]
    assert all(isinstance(key, str) for key in keys)
    assert len(set(keys)) == len(keys)


def test_filters_are_values():
    one, other = parse_filter({"a": [1, {"x": 2}]}), parse_filter({"a": [1.0, {"x": 2}]})
    assert isinstance(one, Filter)
    assert one == other
    assert hash(one) == hash(other)
    assert one.key
    assert one == other
    with pytest.raises(AttributeError):
        one.op = "ne"


# Laws, over arbitrary filters and metadata from one small world in which they often meet.
keys = st.sampled_from(["a", "b"])
scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 2, "x", "X", "xy", ""])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2), max_leaves=3
)
metadatas = st.dictionaries(keys, values, max_size=2)
ordered = st.sampled_from([0, 1, 1.5, "x", "y"])
conditions = st.one_of(
    st.tuples(st.sampled_from(["eq", "ne", "contains"]), values),
    st.tuples(st.sampled_from(["in", "nin", "any", "all"]), st.lists(values, max_size=3)),
    st.tuples(st.sampled_from(["gt", "gte", "lt", "lte"]), ordered),
    st.tuples(st.sampled_from(["exists", "is_empty"]), st.booleans()),
    st.tuples(st.just("text_match"), st.sampled_from(["x", "XY", ""])),
)
leaves = st.builds(lambda key, condition: {key: {condition[0]: condition[1]}}, keys, conditions)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=4,
)


@settings(deadline=None)
@given(filters, filters, metadatas)
def test_laws_of_logic(p, q, metadata):
    a, b = accepts(p, metadata), accepts(q, metadata)
    assert accepts({"not": p}, metadata) is (not a)
    assert accepts({"and": [p, q]}, metadata) is (a and b)
    assert accepts({"or": [p, q]}, metadata) is (a or b)
    de_morgan = {"not": {"or": [{"not": p}, {"not": q}]}}
    assert accepts(de_morgan, metadata) is accepts({"and": [p, q]}, metadata)


@settings(deadline=None)
@given(keys, values, st.lists(values, max_size=3), metadatas)
def test_negative_operators_are_complements(key, value, options, metadata):
    assert accepts({key: {"ne": value}}, metadata) is not accepts({key: {"eq": value}}, metadata)
    assert accepts({key: {"nin": options}}, metadata) is not accepts({key: {"in": options}}, metadata)
    one_of = {"or": [{key: {"eq": option}} for option in options]}
    assert accepts({key: {"in": options}}, metadata) is accepts(one_of, metadata)
    assert accepts({key: {"exists": True}}, metadata) is (key in metadata)


@settings(deadline=None)
@given(filters, metadatas)
def test_a_filter_survives_json(filter, metadata):
    again = json.loads(json.dumps(filter))
    assert parse_filter(again).key == parse_filter(filter).key
    assert accepts(again, metadata) is accepts(filter, metadata)


@settings(deadline=None)
@given(filters, filters, metadatas)
def test_equal_keys_mean_equal_answers(p, q, metadata):
    if parse_filter(p).key == parse_filter(q).key:
        assert accepts(p, metadata) is accepts(q, metadata)
