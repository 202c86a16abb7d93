"""A dataset's passages in a store: kept, used again, and refused when they are not what they were."""

import dataclasses

import pytest

from sidr_rag.errors import FileReadError, InvalidInputError
from sidr_rag.eval import evaluate
from sidr_rag.types import Passage


def test_a_kept_store_is_used_again_with_its_embeddings(data, encoder, tmp_path):
    store = tmp_path / "store"
    names = ["full", "late@5", "theta:bin"]
    first = evaluate(data, names, model=encoder, store=store)
    second = evaluate(data, names, model=encoder, store=store)
    assert first.encoded > 0
    assert second.encoded == 0
    assert second.indexing.wall == 0
    assert {n: r.run for n, r in second.results.items()} == {n: r.run for n, r in first.results.items()}


@pytest.mark.parametrize("change", ["text", "more", "fewer", "order", "id"])
def test_a_store_of_other_passages_is_refused(data, encoder, tmp_path, change):
    store = tmp_path / "store"
    evaluate(data, ["beta"], model=encoder, store=store)
    passages = list(data.passages())
    if change == "text":
        passages[7] = dataclasses.replace(passages[7], text="other")
    elif change == "more":
        passages.append(Passage("new", "river"))
    elif change == "fewer":
        passages.pop()
    elif change == "order":
        passages.reverse()
    else:
        passages[7] = dataclasses.replace(passages[7], id="other")
    other = dataclasses.replace(data, passages=lambda: iter(passages))
    with pytest.raises(InvalidInputError, match="holds other passages than made"):
        evaluate(other, ["beta"], model=encoder, store=store)


def test_a_corpus_that_cannot_be_read_leaves_a_store_that_can_be_filled(data, encoder, tmp_path):
    store = tmp_path / "store"

    def broken():
        yield from data.passages()
        raise FileReadError("corpus.jsonl, line 41: is no JSON")

    with pytest.raises(FileReadError, match="line 41"):
        evaluate(dataclasses.replace(data, passages=broken), ["beta"], model=encoder, store=store)
    assert evaluate(data, ["beta"], model=encoder, store=store).n_passages == 40


def test_ids_that_come_twice_or_cannot_be_written_are_refused(data, encoder):
    twice = dataclasses.replace(data, passages=lambda: iter([*data.passages(), Passage("p3", "river")]))
    with pytest.raises(FileReadError, match="passage id 'p3' comes more than once"):
        evaluate(twice, ["beta"], model=encoder)
    spaced = dataclasses.replace(data, passages=lambda: iter([Passage("a b", "river")]))
    assert evaluate(spaced, ["beta"], model=encoder).n_passages == 1
    with pytest.raises(InvalidInputError, match="passage id 'a b'"):
        evaluate(spaced, ["beta"], model=encoder, plain_ids=True)
