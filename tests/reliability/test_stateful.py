import pytest


@pytest.mark.parametrize("in_memory", [False, True], ids=["folder", "memory"])
def test_any_order_of_calls(parts, in_memory):
    from benchmarks.reliability.stateful import run_machine

    assert run_machine(parts, examples=15, steps=20, in_memory=in_memory)["runs"] >= 15


def test_fuzz(parts):
    from benchmarks.reliability.fuzz import run_fuzz

    counts = run_fuzz(parts, examples=30)
    assert counts["stores"] >= 30
    assert counts["filters accepted"] > 5
    assert counts["faulty arguments"] >= 30


def test_nasty_texts_in_every_place(parts, tmp_path):
    from benchmarks.reliability.fuzz import nasty_texts
    from benchmarks.reliability.model import Ask, Doc, Model, add_docs, passages_differ, searches_differ

    texts = nasty_texts()
    if not texts:
        pytest.skip("the cases' inputs are not on this machine")
    items = [
        (f"{i}{text}", Doc(text, texts[-i], {text: text, "list": [text, i], "deep": {"text": text}}))
        for i, text in enumerate(texts)
    ]
    model = Model()
    model.add(items)
    asks = [Ask(text, filter={"list": {"contains": text}}) for text in texts] + [Ask(text) for text in texts]
    with parts.create(tmp_path / "store") as sidr:
        add_docs(sidr, items)
        sidr.save(tmp_path / "copy")
    for name in ("store", "copy"):
        with parts.open(tmp_path / name) as sidr:
            assert passages_differ(sidr, model) is None
            assert searches_differ(sidr, model, asks, parts) is None
            assert [p.id for p in sidr.get([i for i, _ in items])] == list(model.docs)


def test_filters_tell_halves_of_a_pair_from_the_character(parts):
    """Two lone surrogates are not the emoji that they would make."""
    halves, emoji = ["\ud83d" + "\ude00"], ["\U0001f600"]
    with parts.memory() as sidr:
        sidr.add(["amber", "amber"], ids=["halves", "emoji"], metadatas=[{"tag": halves}, {"tag": emoji}])
        for wanted, passage_id in ((halves, "halves"), (emoji, "emoji")):
            found = sidr.search("amber", filter={"tag": wanted}, first_stage="lexical")
            assert [r.passage.id for r in found] == [passage_id]
