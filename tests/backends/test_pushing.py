"""What engines apply of a filter lets every matching record through, whatever the metadata."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.backends.protocol import filterable
from sidr_rag.backends.pushing import Between, Equals, HasAny, Joined, pushed
from sidr_rag.search.filters import parse_filter

conftest = sys.modules[next(name for name in sys.modules if name.endswith("backends.conftest"))]

VALUES = [
    None, True, False, 0, 1, 1.0, -3, 2.5, 2**53 + 1, -(2**60), 10**30, 1e-300, 1e300, "", "a", "A", "é", "\ud800", "1",
    "true", 'q"u', "a'b", "back\\slash", "?", [], ["a"], ["a", "b"], [1, "a"], [True], [["a"]], {},
    {"x": 1}, {"x": "a"},
]  # fmt: skip
SCALARS = [value for value in VALUES if not isinstance(value, (list, dict))]
NUMBERS = [value for value in SCALARS if isinstance(value, (int, float)) and not isinstance(value, bool)]
KEYS = ["k", "other", "x y", "k.x"]

conditions = st.one_of(
    st.builds(
        lambda k, op, v: {k: {op: v}}, st.sampled_from(KEYS), st.sampled_from(["eq", "ne"]), st.sampled_from(VALUES)
    ),
    st.builds(
        lambda k, op, v: {k: {op: v}},
        st.sampled_from(KEYS),
        st.sampled_from(["in", "nin", "any", "all"]),
        st.lists(st.sampled_from(SCALARS), max_size=3),
    ),
    st.builds(
        lambda k, op, v: {k: {op: v}},
        st.sampled_from(KEYS),
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        st.sampled_from([*NUMBERS, "a"]),
    ),
    st.builds(lambda v: {("k", "x"): v}, st.sampled_from(SCALARS)),
    st.builds(lambda op, v: {"k": {op: v}}, st.sampled_from(["exists", "is_empty"]), st.booleans()),
    st.builds(lambda op, v: {"k": {op: v}}, st.sampled_from(["contains"]), st.sampled_from(SCALARS)),
)
filters = st.recursive(
    conditions,
    lambda parts: st.one_of(
        st.builds(
            lambda op, items: {op: items}, st.sampled_from(["and", "or"]), st.lists(parts, min_size=1, max_size=3)
        ),
        st.builds(lambda part: {"not": part}, parts),
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module", params=conftest.REMOTE)
def many_kinds(request, tokenizer, tmp_path_factory):
    """A collection with every value under every key."""
    place = "qdrant:memory:" if request.param == "qdrant" else request.param
    sidr = conftest.open_on(place, tmp_path_factory.mktemp("pushing"), tokenizer)
    metadatas = [{key: value} for key in KEYS for value in VALUES] + [{}]
    sidr.add(["words"] * len(metadatas), metadatas=metadatas)
    passages = {p.id: p.metadata for p in sidr.get(sidr.ids())}
    yield sidr, passages
    sidr.close()


def test_no_engine_hides_a_match(many_kinds):
    sidr, passages = many_kinds

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(filters)
    def check(wanted):
        condition = parse_filter(wanted)
        shown = {head.passage_id for head in sidr._remote.heads(condition)}
        assert {i for i, metadata in passages.items() if condition.matches(metadata)} <= shown

    check()


def test_plain_conditions_are_left_to_the_engine(many_kinds):
    sidr, passages = many_kinds
    for wanted, most in (({"k": "a"}, 4), ({"k": {"gte": 2, "lte": 3}}, 1), ({"or": [{"k": "A"}, {"other": "1"}]}, 2)):
        condition = parse_filter(wanted)
        assert len(list(sidr._remote.backend.heads(condition))) <= most < len(passages)


def test_what_is_pushed():
    def of(wanted, **options):
        return pushed(parse_filter(wanted), **options)

    assert of({"a": "x"}) == Equals(("a",), ("x",))
    assert of({"a": 3}) == Between(("a",), 3.0, 3.0)
    assert of({"a": {"gt": 3, "lte": 9}}) == Joined("and", (Between(("a",), 3.0, None), Between(("a",), None, 9.0)))
    assert of({"a": {"any": ["x", "y"]}}) == HasAny(("a",), ("x", "y"))
    assert of({"a": "x", "b": {"ne": 1}}) == Equals(("a",), ("x",))
    assert of({"or": [{"a": "x"}, {"b": {"ne": 1}}]}) is None
    assert of({"a": True}, booleans=False) is None
    assert of({"or": [{"a": "x"}, {"a": True}]}, booleans=False) is None
    for unsafe in ({"a": "é"}, {"a": 10**30}, {"a b": "x"}, {"a": None}, {"not": {"a": "x"}}, {}, None):
        assert of(unsafe) is None


def test_metadata_that_engines_can_keep():
    kept = filterable({"a": 10**400, "b": "\ud800", "c": [2**60, {"d": -(10**400)}], "e": True, "\ud800": 1})
    assert kept == {"a": 1.7e308, "b": "?", "c": [float(2**60), {"d": -1.7e308}], "e": True, "?": 1}
