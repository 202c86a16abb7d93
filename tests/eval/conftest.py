import json

import numpy as np
import pytest
from stub_encoders import StubEncoder

from sidr_rag import Weighting
from sidr_rag.eval import Dataset
from sidr_rag.types import Passage

PASSAGES = {
    "cats": ("Pets", "A cat sleeps for most of the day."),
    "dogs": ("Pets", "A dog barks at strangers in the park."),
    "bread": ("", "Bread is baked from flour, water, salt and yeast."),
    "metal": ("", "Copper is a metal that conducts electricity."),
    "birds": ("Animals", "Falcons hunt by day and sleep at night."),
}
QUERIES = {
    "q1": "where do dogs bark",
    "q2": "what is bread made of",
    "q3": "which metal conducts electricity",
    "q4": "cat",
}
QRELS = {"q1": {"dogs": 1}, "q2": {"bread": 2, "metal": 0}, "q3": {"metal": 1}}
ANSWERS = {"q2": ["flour, water"], "q3": ["copper"]}


def write_lines(path, values):
    path.write_text("".join(json.dumps(v) + "\n" for v in values), encoding="utf-8")


@pytest.fixture
def beir(tmp_path):
    """A BEIR folder of five passages; q4 has no judgement."""
    folder = tmp_path / "small"
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", [{"_id": i, "title": t, "text": x} for i, (t, x) in PASSAGES.items()])
    write_lines(
        folder / "queries.jsonl",
        [{"_id": i, "text": t, **({"answers": ANSWERS[i]} if i in ANSWERS else {})} for i, t in QUERIES.items()],
    )
    rows = [f"{q}\t{p}\t{g}\n" for q, judged in QRELS.items() for p, g in judged.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq4\tcats\t1\n", encoding="utf-8")
    return folder


@pytest.fixture
def dpr(tmp_path):
    """A folder with DPR's two kinds of files."""
    folder = tmp_path / "dpr"
    folder.mkdir()
    (folder / "psgs_w100.tsv").write_text(
        "id\ttext\ttitle\n"
        '1\t"Aaron (""Ahärôn"") is a prophet, the brother of Moses."\tAaron\n'
        "2\tThe Nobel Prize in Physics went to Wilhelm Conrad Röntgen.\tNobel Prize\n"
        "3\tIt's a river in Egypt.\tNile\n",
        encoding="utf-8",
    )
    (folder / "nq-test.qa.csv").write_text(
        "who got the first nobel prize in physics\t['Wilhelm Conrad Röntgen']\n"
        "who is the brother of moses\t[\"Aaron\", 'the prophet']\n"
        'what is the nile\t["It\'s a river"]\n',
        encoding="utf-8",
    )
    return folder


LEVELLED = Weighting(levels=(1, 2), gains=(1.0, 0.5), idf_exponent=1.0, length_exponent=0.5, length_slope=0.4)
WORDS = ["river", "city", "bridge", "north", "south", "music", "market", "winter", "stone", "garden", "light", "water"]


def made_dataset(n=40, seed=1):
    draw = np.random.default_rng(seed)
    passages = [
        Passage(f"p{i}", " ".join(draw.choice(WORDS, int(draw.integers(3, 12)))), "old" if i % 3 else None)
        for i in range(n)
    ]
    queries = {f"q{i}": " ".join(draw.choice(WORDS, 3, replace=False)) for i in range(7)}
    qrels = {q: {f"p{j}": int(draw.integers(0, 3)) for j in draw.choice(n, 6, replace=False)} for q in queries}
    return Dataset("made", "test", lambda: iter(passages), queries, qrels)


@pytest.fixture
def data():
    """Forty passages of random words, seven queries, six judgements each."""
    return made_dataset()


@pytest.fixture
def levelled():
    return LEVELLED


@pytest.fixture
def encoder(tokenizer):
    return StubEncoder(tokenizer, weighting=LEVELLED.to_mapping(), rerank_blend=0.5, spread=4)
