"""BEIR's and DPR's files as streams, and their faults by file and line."""

import gzip
from pathlib import Path

import pytest

from sidr_rag.errors import FileReadError, InvalidInputError, InvalidTypeError
from sidr_rag.eval import load_beir, load_dataset, load_dpr
from sidr_rag.types import Passage

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "eval"


def test_a_beir_folder_gives_the_judged_queries_of_its_split(beir):
    data = load_beir(beir)
    assert (data.name, data.split) == ("small", "test")
    assert list(data.queries) == ["q1", "q2", "q3"]
    assert data.qrels["q2"] == {"bread": 2, "metal": 0}
    assert data.answers == {"q2": ["flour, water"], "q3": ["copper"]}
    passages = list(data.passages())
    assert passages[0] == Passage("cats", "A cat sleeps for most of the day.", "Pets")
    assert passages[2].title is None
    assert list(load_beir(beir, "dev").queries) == ["q4"]


def test_the_corpus_is_a_stream_that_starts_anew_each_time(beir):
    data = load_beir(beir)
    first = data.passages()
    next(first)
    with (beir / "corpus.jsonl").open("a", encoding="utf-8") as f:
        f.write("not json\n")
    assert next(data.passages()).id == "cats"
    with pytest.raises(FileReadError, match=r"corpus\.jsonl, line 6: is no JSON"):
        list(data.passages())


def test_packed_files_are_read_like_plain_ones(beir):
    plain = load_beir(beir)
    expected = list(plain.passages())
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        path = beir / name
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = load_beir(beir)
    assert list(packed.passages()) == expected
    assert (packed.queries, packed.qrels, packed.answers) == (plain.queries, plain.qrels, plain.answers)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("corpus.jsonl", '{"_id": "x"}', "field 'text' is missing"),
        ("corpus.jsonl", '{"_id": "x", "text": 3}', "field 'text' is a int"),
        ("corpus.jsonl", '{"_id": "", "text": "secret"}', "field '_id' is empty"),
        ("corpus.jsonl", '{"_id": ["x"], "text": "secret"}', "field '_id' is a list"),
        ("corpus.jsonl", '["secret"]', "is JSON, but no object: list"),
        ("corpus.jsonl", "[" * 100_000, "is JSON that cannot be read"),
        ("queries.jsonl", '{"_id": "q1", "text": "secret"}', "repeats query id 'q1'"),
        ("queries.jsonl", '{"_id": "q1", "text": "x", "answers": "secret"}', "repeats"),
        ("qrels/test.tsv", "q1 dogs 1", "has 1 tab-separated columns"),
        ("qrels/test.tsv", "q1\tcats\tyes", "has a grade that is no integer"),
        ("qrels/test.tsv", "q1\tdogs\t0", "judges passage 'dogs' for query 'q1' again, otherwise"),
    ],
)
def test_a_malformed_line_is_named_by_file_and_line_without_its_text(beir, name, line, reason):
    path = beir / name
    n = len(path.read_text(encoding="utf-8").splitlines()) + 1
    with path.open("a", encoding="utf-8") as f:
        f.write(line + "\n")
    with pytest.raises(FileReadError) as caught:
        list(load_beir(beir).passages())
    message = str(caught.value)
    assert f"{path.name}, line {n}: " in message
    assert reason in message
    assert "secret" not in message


def test_answers_that_are_no_list_of_strings_are_refused(beir):
    path = beir / "queries.jsonl"
    path.write_text('{"_id": "q1", "text": "x", "answers": "y"}\n', encoding="utf-8")
    with pytest.raises(FileReadError, match="line 1: has answers that are no list of strings"):
        load_beir(beir)


def test_bytes_that_are_no_utf_8_are_named_by_their_own_line(beir):
    path = beir / "corpus.jsonl"
    path.write_bytes(path.read_bytes() + b'{"_id": "x", "text": "\xff"}\n')
    with pytest.raises(FileReadError, match=r"line 6: is no UTF-8"):
        list(load_beir(beir).passages())


def test_a_cut_off_gzip_file_is_an_error_and_not_a_shorter_corpus(beir):
    path = beir / "corpus.jsonl"
    packed = gzip.compress(path.read_bytes())
    path.with_name("corpus.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    path.unlink()
    with pytest.raises(FileReadError, match=r"corpus\.jsonl\.gz"):
        list(load_beir(beir).passages())


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_no_fault(beir):
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        path = beir / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    data = load_beir(beir)
    assert [p.id for p in data.passages()] == ["cats", "dogs", "bread", "metal", "birds"]
    assert list(data.qrels) == ["q1", "q2", "q3"]


def test_what_is_missing_is_named(beir, tmp_path):
    with pytest.raises(InvalidInputError, match=r"split='train'.*\['dev', 'test'\]"):
        load_beir(beir, "train")
    with pytest.raises(InvalidInputError, match=r"split='\.\./test'"):
        load_beir(beir, "../test")
    (beir / "qrels" / "test.tsv").write_text("q1\tdogs\t1\nlost\tdogs\t1\n", encoding="utf-8")
    with pytest.raises(FileReadError, match=r"judges query 'lost', which queries\.jsonl does not have"):
        load_beir(beir)
    (beir / "queries.jsonl").unlink()
    with pytest.raises(FileReadError, match=r"has no queries\.jsonl"):
        load_beir(beir)
    with pytest.raises(FileReadError, match=r"neither corpus\.jsonl"):
        load_dataset(tmp_path)
    with pytest.raises(FileReadError, match="no such file or folder"):
        load_dataset(tmp_path / "nowhere")


def test_fewer_queries_are_evenly_spaced_and_keep_their_judgements(beir):
    data = load_beir(beir).limited(2)
    assert list(data.queries) == ["q1", "q2"]
    assert set(data.qrels) == {"q1", "q2"}
    assert set(data.answers) == {"q2"}
    assert load_beir(beir).limited(9).queries == load_beir(beir).queries
    with pytest.raises(InvalidInputError, match="limit_queries=0"):
        data.limited(0)
    with pytest.raises(InvalidTypeError, match="limit_queries"):
        data.limited(1.5)


def test_dpr_files(dpr):
    data = load_dpr(dpr / "psgs_w100.tsv", dpr / "nq-test.qa.csv")
    assert data.name == "nq-test"
    assert list(data.passages()) == [
        Passage("1", 'Aaron ("Ahärôn") is a prophet, the brother of Moses.', "Aaron"),
        Passage("2", "The Nobel Prize in Physics went to Wilhelm Conrad Röntgen.", "Nobel Prize"),
        Passage("3", "It's a river in Egypt.", "Nile"),
    ]
    assert data.queries["0"] == "who got the first nobel prize in physics"
    assert data.answers == {"0": ["Wilhelm Conrad Röntgen"], "1": ["Aaron", "the prophet"], "2": ["It's a river"]}
    assert data.qrels == {}


def test_a_dpr_folder_is_found_by_its_files(dpr):
    assert load_dataset(dpr).name == "nq-test"
    assert load_dataset(dpr / "psgs_w100.tsv", questions=dpr / "nq-test.qa.csv").name == "nq-test"
    with pytest.raises(InvalidInputError, match=r"split='dev'.*found nq-test\.qa\.csv"):
        load_dataset(dpr, "dev")
    (dpr / "trivia-test.qa.csv").write_text("a\t['b']\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"found nq-test\.qa\.csv, trivia-test\.qa\.csv"):
        load_dataset(dpr)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("4\tonly two", "line 5: has 2 tab-separated columns"),
        ("\ttext\ttitle", "line 5: has an empty id"),
        ("4\t" + "x" * 200_000 + "\ttitle", "line 5: starts a record that cannot be read"),
    ],
)
def test_a_malformed_passage_is_named_by_its_line(dpr, record, reason):
    with (dpr / "psgs_w100.tsv").open("a", encoding="utf-8") as f:
        f.write(record + "\n")
    with pytest.raises(FileReadError, match=r"psgs_w100\.tsv, " + reason):
        list(load_dataset(dpr).passages())


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("no answers", "has 1 tab-separated columns"),
        ("q\t__import__('os')", "has answers that are no Python list"),
        ("q\t['a", "has answers that are no Python list"),
        ("q\t[1]", "has answers that are no list of strings"),
        ("q\t'a'", "has answers that are no list of strings"),
    ],
)
def test_malformed_answers_are_never_run_and_named_by_their_line(dpr, record, reason):
    with (dpr / "nq-test.qa.csv").open("a", encoding="utf-8") as f:
        f.write(record + "\n")
    with pytest.raises(FileReadError, match=r"nq-test\.qa\.csv, line 4: " + reason):
        load_dataset(dpr)


@pytest.mark.parametrize(
    ("name", "split", "n_queries", "n_passages", "n_answers"),
    [("cranfield", "test", 225, 1398, 0), ("nq-utd", "test", 80, 800, 80), ("multispanqa-nq", "dev", 653, 2545, 0)],
)
def test_the_shared_sets_have_the_counts_that_their_sources_state(name, split, n_queries, n_passages, n_answers):
    if not SHARED.is_dir():
        pytest.skip("the judged sets are not on this machine")
    data = load_beir(SHARED / name, split)
    assert (len(data.queries), sum(1 for _ in data.passages())) == (n_queries, n_passages)
    assert len(data.answers) == n_answers
