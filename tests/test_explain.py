import json
import math

import numpy as np
import pytest
from stub_encoders import StubEncoder

from sidr_rag.errors import InvalidInputError
from sidr_rag.explain import Explanation, TokenPart
from sidr_rag.search.weighting import BINARY, Weighting

TEXTS = ["the copper harbor ledger", "a copper kettle on the stove", "winter garden and river stone", "copper copper"]
LEVELLED = Weighting((1, 2, 4), (1.0, 0.35, 0.25), 1.0, 0.5, 0.4, 0.15)


@pytest.fixture
def sidr(make, tokenizer):
    made = make(encoder=StubEncoder(tokenizer, spread=3), weighting=LEVELLED)
    made.add(TEXTS, ids=list("abcd"), titles=[None, "winter", None, None])
    return made


@pytest.mark.parametrize("search", ["full", "alpha"])
@pytest.mark.parametrize("query_repr", ["theta", "lex", "bin", "bot"])
def test_parts_of_the_full_score_add_up_to_it(sidr, search, query_repr):
    results = sidr.search("copper harbor winter", search=search, query_repr=query_repr)
    assert results
    for result in results:
        explained = sidr.explain("copper harbor winter", result.passage.id, search=search, query_repr=query_repr)
        assert np.float32(explained.score).tobytes() == np.float32(result.score).tobytes()
        assert math.fsum(p.contribution for p in explained.parts) == pytest.approx(explained.score, rel=1e-6)
        assert all(p.contribution == pytest.approx(p.weight * p.passage_weight) for p in explained.parts)
        assert explained.search == search
        assert [p.contribution for p in explained.parts] == sorted(
            (p.contribution for p in explained.parts), reverse=True
        )


def test_origins_of_tokens(sidr):
    by_token = {p.token: p for p in sidr.explain("copper harbor", "a", search="full").parts}
    assert by_token["copper"].in_query
    assert by_token["copper"].in_passage
    assert any(not p.in_query for p in by_token.values())
    assert sidr.explain("copper zebra", "a", search="full").missed == ("zebra",)
    expanded = sidr.explain("copper harbor", "c", search="full")
    assert all(not (p.in_query and p.in_passage) for p in expanded.parts)


@pytest.mark.parametrize(
    "arguments", [{}, {"first_stage": "lexical"}, {"first_stage": "overlap"}, {"query_repr": "bin"}]
)
def test_parts_of_every_beta_score_add_up_to_it(sidr, arguments):
    for result in sidr.search("copper copper winter", **arguments):
        explained = sidr.explain("copper copper winter", result.passage.id, **arguments)
        assert np.float32(explained.score).tobytes() == np.float32(result.score).tobytes()
        assert math.fsum(p.contribution for p in explained.parts) == pytest.approx(explained.score, rel=1e-6)


def test_auto_explains_what_it_stands_for(make, tokenizer):
    sidr = make(encoder=StubEncoder(tokenizer, spread=3), weighting=BINARY)
    sidr.add([f"copper {a} {b}" for a in "abcdefgh" for b in "ijklmnop"], ids=[str(i) for i in range(64)])
    assert sidr.explain("copper", "5", search="auto").search == "beta"
    sidr.embed()
    assert sidr.explain("copper", "5", search="auto").search == "full"


def test_what_cannot_be_explained_is_refused(sidr):
    for search in ("beta", "full"):
        with pytest.raises(InvalidInputError, match="no such passage"):
            sidr.explain("copper", "nobody", search=search)
    with pytest.raises(InvalidInputError, match="no parts by token"):
        sidr.explain("copper", "a", first_stage="bm25")
    with pytest.raises(InvalidInputError, match="'late'"):
        sidr.explain("copper", "a", search="late")


def test_explanations_are_data(sidr):
    for search in ("beta", "full"):
        values = json.loads(json.dumps(sidr.explain("copper harbor", "a", search=search).to_dict()))
        assert values["passage_id"] == "a"
        assert values["search"] == search
        assert values["parts"][0].keys() >= {"token", "weight", "contribution", "in_query"}


def explanation(n, search="beta", token="token"):
    parts = tuple(TokenPart(f"{token}{i}", i, 1.0, 1, 10.0 - i / 10, i % 2 == 0) for i in range(n))
    return Explanation("p1", sum(p.contribution for p in parts), 1.0, parts, ("gone",), search)


def test_a_rich_table_shows_the_greatest_parts_and_the_rest():
    rich = pytest.importorskip("rich.console")
    for search, held in (("beta", "levels"), ("full", "passage")):
        console = rich.Console(record=True, width=100)
        console.print(explanation(30, search, "[b]"))
        text = console.export_text()
        assert held in text
        assert "[b]0" in text, "a token is no markup"
        assert "10 more" in text
        assert "gone" in text
        assert "p1" in text


def test_a_chart_has_a_bar_for_each_part_and_one_for_the_rest(sidr):
    pytest.importorskip("matplotlib")
    ax = explanation(30, token="$x_").plot(most=10)
    assert len(ax.patches) == 11
    assert ax.patches[0].get_width() == 10.0
    assert sum(p.get_width() for p in ax.patches) == pytest.approx(explanation(30).score)
    ax.figure.canvas.draw()
    assert len(explanation(0).plot().patches) == 0
    from matplotlib.figure import Figure

    given = Figure().add_subplot()
    assert sidr.explain("copper harbor", "a", search="full").plot(given) is given
