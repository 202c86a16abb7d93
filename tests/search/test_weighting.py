import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.search.weighting import BINARY, Weighting, heaviest, idf, weigh_queries, without_light_weights
from sidr_rag.types import SparseVectors

FULL = Weighting((1, 2, 4), (1.0, 0.35, 0.25), 1.0, 0.5, 0.4, 0.15)


APART = Weighting(theta_blend=0.5, expansion_blend=0.25)


@pytest.mark.parametrize("weighting", [BINARY, FULL, APART, Weighting((1, 3), (2, 1), theta_blend=0)])
def test_a_weighting_survives_json(weighting):
    import json

    assert Weighting.from_mapping(json.loads(json.dumps(weighting.to_mapping()))) == weighting


@pytest.mark.parametrize(
    "values",
    [
        {"levels": ()},
        {"levels": (2,)},
        {"levels": (1, 1), "gains": (1.0, 1.0)},
        {"levels": (1, 4, 2), "gains": (1.0, 1.0, 1.0)},
        {"gains": ()},
        {"gains": (0.0,)},
        {"gains": (-1.0,)},
        {"gains": (math.nan,)},
        {"gains": (math.inf,)},
        {"idf_exponent": -1.0},
        {"length_exponent": math.nan},
        {"length_slope": 1.5},
        {"theta_blend": -0.1},
        {"theta_blend": math.inf},
        {"expansion_blend": -0.1, "theta_blend": 0.5},
        {"expansion_blend": 0.1},
    ],
)
def test_values_without_meaning_are_refused_by_name(values):
    with pytest.raises(InvalidInputError, match=f"weighting.({'|'.join(values)})"):
        Weighting(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"levels": 5},
        {"levels": [1.5]},
        {"levels": (True,)},
        {"gains": ("a",)},
        {"gains": None},
        {"idf_exponent": "1"},
        {"length_slope": None},
        {"theta_blend": "x"},
        {"theta_blend": 0.5, "expansion_blend": True},
    ],
)
def test_values_of_another_type_are_refused_by_name(values):
    with pytest.raises(InvalidTypeError, match=f"weighting.({'|'.join(values)})"):
        Weighting.from_mapping(values)


def test_unknown_settings_are_refused_by_name():
    with pytest.raises(InvalidInputError, match="b25"):
        Weighting.from_mapping({"b25": 1})


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_idf_is_positive_and_falls(n, df):
    n, df = max(n, df), min(n, df)
    values = idf(np.array([df, df + 1]), n + 1)
    assert values[0] > values[1] > 0


def test_idf_is_lucene_s():
    assert idf(np.array([3]), 10)[0] == pytest.approx(math.log(1 + (10 - 3 + 0.5) / (3 + 0.5)), rel=1e-15)


def rows(*parts):
    return SparseVectors.from_rows([(list(p), list(p.values())) for p in parts], 10)


def weighed(weighting, theta, own, df=None, n=20):
    df = np.arange(10) if df is None else df
    dims, weights = weigh_queries(rows(theta), rows(own), weighting, df, n).row(0)
    return dict(zip(dims.tolist(), weights.tolist(), strict=True))


def test_the_paper_s_weights_are_theta_itself():
    assert weighed(BINARY, {1: 0.5, 7: 2.0}, {1: 1.0, 3: 1.0}) == {1: 0.5, 7: 2.0}


def test_blending_adds_theta_to_the_own_words():
    got = weighed(Weighting(theta_blend=0.25), {1: 0.5, 7: 2.0}, {1: 1.0, 3: 1.0})
    assert got == {1: 1.125, 3: 1.0, 7: 0.5}


def test_words_outside_the_query_have_a_blend_of_their_own():
    theta, own = {1: 0.5, 7: 2.0, 8: 1.0}, {1: 1.0, 3: 1.0}
    assert weighed(APART, theta, own) == {1: 1.25, 3: 1.0, 7: 0.5, 8: 0.25}
    assert weighed(Weighting(theta_blend=0.5, expansion_blend=0.5), theta, own) == weighed(
        Weighting(theta_blend=0.5), theta, own
    )


def test_idf_multiplies_by_its_power():
    got = weighed(Weighting(idf_exponent=2.0), {1: 0.5, 7: 2.0}, {})
    values = idf(np.arange(10), 20)
    assert got[1] == pytest.approx(0.5 * values[1] ** 2, rel=1e-7)
    assert got[7] == pytest.approx(2.0 * values[7] ** 2, rel=1e-7)


def test_empty_queries_and_empty_corpora_give_empty_rows_or_finite_weights():
    assert weighed(FULL, {}, {}) == {}
    got = weighed(FULL, {1: 1.0}, {1: 1.0}, df=np.zeros(10, np.int64), n=0)
    assert np.isfinite(list(got.values())).all()


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 9), st.floats(0.125, 4, width=16), max_size=6),
            st.sets(st.integers(0, 9), max_size=4),
        ),
        max_size=5,
    ),
    st.sampled_from([FULL, BINARY, APART, Weighting(theta_blend=0.15), Weighting(idf_exponent=0.5)]),
)
def test_queries_together_have_the_bits_of_queries_alone(queries, weighting):
    df = np.arange(10) * 3 + 1
    theta, own = rows(*(t for t, _ in queries)), rows(*(dict.fromkeys(o, 1.0) for _, o in queries))
    together = weigh_queries(theta, own, weighting, df, 40)
    together.validate()
    assert len(together) == len(queries)
    for (dims, weights), (t, o) in zip(together, queries, strict=True):
        share = weighting.theta_blend
        outside = share if weighting.expansion_blend is None else weighting.expansion_blend
        expected = {d: w if share is None else (share if d in o else outside) * w for d, w in t.items()}
        if share is not None:
            for d in o:
                expected[d] = expected.get(d, 0.0) + 1.0
        wanted = {
            d: np.float32(w * idf(df[[d]], 40)[0] ** weighting.idf_exponent if weighting.idf_exponent else w)
            for d, w in expected.items()
        }
        assert dict(zip(dims.tolist(), weights, strict=True)) == wanted
        alone = weigh_queries(rows(t), rows(dict.fromkeys(o, 1.0)), weighting, df, 40)
        assert alone.weights.tobytes() == weights.tobytes()


def test_unequal_numbers_of_queries_are_refused():
    with pytest.raises(InvalidInputError, match="got 0 and 1"):
        weigh_queries(rows({1: 1.0}), rows(), FULL, np.ones(10, np.int64), 5)


def test_the_heaviest_dimensions_stay_and_the_own_ones():
    vectors, own = rows({1: 1.0, 2: 3.0, 3: 2.0, 4: 3.0}, {5: 1.0}, {}), rows({1: 1.0, 9: 1.0}, {}, {2: 1.0})
    got = heaviest(vectors, own, 1)
    got.validate()
    assert [dict(zip(d.tolist(), w.tolist(), strict=True)) for d, w in got] == [{1: 1.0, 2: 3.0}, {5: 1.0}, {}]
    assert [d.tolist() for d, _ in heaviest(vectors, own, 2)] == [[1, 2, 4], [5], []]
    assert heaviest(vectors, own, 9).weights.tolist() == vectors.weights.tolist()


def test_a_weight_floor_drops_the_light_dimensions_of_each_row():
    given_rows = rows({1: 1.0, 2: 0.5, 3: 0.49}, {}, {4: 100.0, 5: 49.0, 6: 51.0})
    got = without_light_weights(given_rows, 0.5)
    got.validate()
    assert [dims.tolist() for dims, _ in got] == [[1, 2], [], [4, 6]]
    assert got.weights.tolist() == [1.0, 0.5, 100.0, 51.0]
    everything = without_light_weights(given_rows, 0.0)
    assert (everything.dims.tolist(), everything.indptr.tolist()) == (given_rows.dims.tolist(), [0, 3, 3, 6])
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(InvalidInputError, match="weight_floor"):
            without_light_weights(given_rows, wrong)
