import numpy as np
import pytest

from sidr_rag.search.weighting import BINARY
from sidr_rag.train.negatives import Judge, Retriever, chosen_negatives
from sidr_rag.train.pool import Pool
from sidr_rag.train.sections import Data, Source
from sidr_rag.types import SparseVectors

RECORDS = [
    {"query": "a1", "text": "a1 a2 a3", "answers": ["A2 a3"]},
    {"query": "a1 a9", "text": "a1 a9 a2 a3"},
    {"query": "a4", "text": "a4 a1 a5"},
    {"query": "a1", "text": "a1 a7"},
]


class TableTeacher:
    def __init__(self, table):
        self.table = np.array(table, dtype=np.float32)

    def scores(self, examples, pids):
        found = self.table[examples[:, None], np.maximum(pids, 0)]
        return np.where(pids < 0, np.nan, found)


@pytest.fixture
def pool(tmp_path, tiny_tokenizer, put_jsonl):
    return Pool(Data((Source(put_jsonl(tmp_path / "p.jsonl", RECORDS)),)), tiny_tokenizer, (1, 2), seed=1)


EVERY = np.array([[0, 1, 2, 3, -1]])


def judged(judge, example):
    return judge.wrong(np.array([example]), EVERY)[0].tolist()


def test_a_known_positive_and_a_passage_with_the_answer_are_right(pool):
    # 0 and 3 answer the same query; 1 holds the answer string.
    assert judged(Judge(pool, None, 0.0), 0) == [False, False, True, False, False]


def test_without_answers_or_teacher_the_rest_is_wrong(pool):
    assert judged(Judge(pool, None, 0.0), 2) == [True, True, False, True, False]


def test_a_teacher_tells_by_its_margin(pool):
    table = [[0.0] * 4, [0.0] * 4, [0.6, 0.5, 0.7, np.nan], [0.0] * 4]
    assert judged(Judge(pool, TableTeacher(table), 0.0), 2) == [True, True, False, False, False]
    assert judged(Judge(pool, TableTeacher(table), 0.15), 2) == [False, True, False, False, False]


def test_answers_come_before_the_teacher(pool):
    table = [[0.5, 0.0, 0.9, 0.0]] + [[0.0] * 4] * 3
    assert judged(Judge(pool, TableTeacher(table), 0.0), 0) == [False, False, True, False, False]


def test_retrieval_is_the_search_itself(pool, tiny_tokenizer):
    dim = tiny_tokenizer.vocabulary.dim
    a1, a9 = (int(tiny_tokenizer.counts([w]).dims[0]) for w in ("a1", "a9"))
    vectors = SparseVectors.from_rows([([a1, a9], [1.0, 0.5]), ([a9], [1.0])], dim)
    retriever = Retriever()
    found = retriever.fetch(vectors, pool.collections[-1], BINARY, 4)
    assert found.tolist() == [[1, 0, 2, 3], [1, -1, -1, -1]]
    assert retriever.seconds > 0


def test_negatives_are_drawn_from_the_wrong_ones():
    fetched = np.array([[5, 6, 7, 8], [5, 6, -1, -1], [1, 2, 3, 4]])
    wrong = np.array([[True, False, True, True], [False, False, False, False], [False] * 4])
    given = [(), (9, 10), ()]
    drawn = [chosen_negatives(fetched, wrong, given, 2, np.random.default_rng(seed)) for seed in range(20)]
    assert {int(n) for one in drawn for n in one[0]} == {5, 7, 8}
    assert all(len(set(one[0].tolist())) == 2 for one in drawn)
    assert all(sorted(one[1].tolist()) == [9, 10] for one in drawn)
    assert all(len(one[2]) == 0 for one in drawn)
    assert all(len(n) == 0 for n in chosen_negatives(fetched, wrong, given, 0, np.random.default_rng(0)))
