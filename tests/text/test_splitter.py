from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.text import BagTokenizer, split_spans

LIMITS = [(160, 0), (40, 10), (8, 0), (8, 7), (5, 2), (3, 1), (1, 0)]


def check_spans(text: str, spans: list[tuple[int, int]], tokenizer: BagTokenizer, max_tokens: int) -> None:
    covered = bytearray(len(text))
    for start, end in spans:
        assert 0 <= start < end <= len(text)
        assert not text[start:end].isspace()
        assert end - start == 1 or len(tokenizer.sequence_ids(text[start:end])) <= max_tokens
        covered[start:end] = b"\1" * (end - start)
    for (a, b), (c, d) in pairwise(spans):
        assert a <= c
        assert b < d
    assert all(done or char.isspace() for done, char in zip(covered, text, strict=True))


def split_texts(text: str, tokenizer: BagTokenizer, **limits: int) -> list[str]:
    return [text[a:b] for a, b in split_spans(text, tokenizer, **limits)]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("text", ["chunk chunk chunk", "This is a test, please stay calm. " * 6])
def test_repeated_chunks_have_their_own_offsets(text, limits, bag_tokenizer) -> None:
    spans = split_spans(text, bag_tokenizer, max_tokens=limits[0], overlap=limits[1])
    check_spans(text, spans, bag_tokenizer, limits[0])
    assert len(set(spans)) == len(spans)


@pytest.mark.parametrize("limits", LIMITS)
def test_sample(limits, sample_texts, bag_tokenizer, raw_tokenizer) -> None:
    for tokenizer in (bag_tokenizer, raw_tokenizer):
        for text in [*sample_texts, "\n\n".join(sample_texts)]:
            spans = split_spans(text, tokenizer, max_tokens=limits[0], overlap=limits[1])
            check_spans(text, spans, tokenizer, limits[0])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(["river", " ", "\n\n", ". ", "故乡。", "한", "x" * 80, "½", "\x0b", "-"]) | st.text(),
        max_size=40,
    ),
    st.sampled_from(LIMITS),
)
def test_arbitrary_text(bag_tokenizer, parts, limits) -> None:
    text = "".join(parts)
    check_spans(
        text, split_spans(text, bag_tokenizer, max_tokens=limits[0], overlap=limits[1]), bag_tokenizer, limits[0]
    )


def test_texts_that_fit_stay_whole(bag_tokenizer) -> None:
    assert split_spans("  one two.\n\nthree  ", bag_tokenizer) == [(2, 17)]
    assert split_spans("", bag_tokenizer) == split_spans(" \n\u3000", bag_tokenizer) == []
    assert split_spans("\u200b", bag_tokenizer) == [(0, 1)]


def test_paragraphs_then_sentences_then_words(bag_tokenizer) -> None:
    ten = "one two three four five six seven eight nine ten"
    assert split_texts(f"{ten}\n\n{ten}. {ten}", bag_tokenizer, max_tokens=15) == [ten, f"{ten}.", ten]
    assert split_texts(f"{ten}. {ten} {ten}", bag_tokenizer, max_tokens=16) == [
        f"{ten}.",
        f"{ten} {ten[:27]}",
        ten[28:],
    ]
    # A heading alone would be far from half full: it stays with what follows.
    assert split_texts(f"title\n\n{ten} {ten}", bag_tokenizer, max_tokens=12)[0] == f"title\n\n{ten} one"


def test_chinese_is_cut_at_its_own_full_stops(bag_tokenizer) -> None:
    chunks = split_texts("床前明月光疑是地上霜。" * 30, bag_tokenizer, max_tokens=40)
    assert len(chunks) == 10
    assert all(chunk.endswith("。") for chunk in chunks)


def test_overlap_repeats_whole_words(bag_tokenizer) -> None:
    chunks = split_texts(" ".join(["river", "stone", "copper", "garden"] * 10), bag_tokenizer, max_tokens=8, overlap=3)
    for one, other in pairwise(chunks):
        assert one.split()[-3:] == other.split()[:3]


def test_other_tokenizers(sample_texts) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(sorted(alphabet))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only = BagTokenizer(tokenizer.to_str())
    text = "\n".join(text for text in sample_texts if text.isascii())
    for max_tokens, overlap in ((100, 0), (30, 10)):
        check_spans(text, split_spans(text, bytes_only, max_tokens=max_tokens, overlap=overlap), bytes_only, max_tokens)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": -3}, "max_tokens=-3"),
        ({"max_tokens": 5, "overlap": 5}, "overlap=5.*max_tokens=5"),
        ({"overlap": -1}, "overlap=-1"),
    ],
)
def test_limits_out_of_range(limits, message, bag_tokenizer) -> None:
    with pytest.raises(InvalidInputError, match=message):
        split_spans("text", bag_tokenizer, **limits)


def test_wrong_types(bag_tokenizer) -> None:
    with pytest.raises(InvalidTypeError, match="max_tokens must be an int, not float"):
        split_spans("text", bag_tokenizer, max_tokens=2.5)
    with pytest.raises(InvalidTypeError, match="overlap must be an int, not bool"):
        split_spans("text", bag_tokenizer, overlap=True)
    with pytest.raises(InvalidTypeError, match="text must be a str, not bytes"):
        split_spans(b"text", bag_tokenizer)


@pytest.mark.parametrize("unit", ["a", "é", "😀", "^", "word zxqvbn. ", "故"])
def test_time_grows_with_the_length(unit, bag_tokenizer, grows_linearly) -> None:
    def split(text):
        assert split_spans(text, bag_tokenizer, max_tokens=160, overlap=20)[-1][1] == len(text.rstrip())

    grows_linearly(split, *((unit * n)[:n] for n in (50_000, 200_000)))
