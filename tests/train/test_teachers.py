import numpy as np
import pytest
import torch

from sidr_rag.errors import InvalidInputError
from sidr_rag.train.distill import CrossScores, Teachers, _taught, find_candidates, load_teachers
from sidr_rag.train.pool import Pool
from sidr_rag.train.sections import CrossTeacher, Data, DenseTeacher, Distillation, Model, Source
from sidr_rag.train.teachers import CrossEncoder, DenseScores, VectorCache
from sidr_rag.train.texts import TextReader
from sidr_rag.train.weights_io import model_config


def silent(*_):
    pass


def test_a_cache_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr("sidr_rag.train.teachers._BLOCK", 4)
    computed = []

    def compute(start, end):
        if start >= 8 and len(computed) < 3:
            computed.append("killed")
            raise KeyboardInterrupt
        computed.append((start, end))
        return np.arange(start, end, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)

    with pytest.raises(KeyboardInterrupt):
        VectorCache(tmp_path / "v.npy", 10, 3).fill(compute, silent, "x")
    again = VectorCache(tmp_path / "v.npy", 10, 3)
    assert again.done == 8
    again.fill(compute, silent, "x")
    assert computed == [(0, 4), (4, 8), "killed", (8, 10)]
    np.testing.assert_array_equal(again.vectors[:, 0], np.arange(10))
    with pytest.raises(InvalidInputError, match=r"v\.npy"):
        VectorCache(tmp_path / "v.npy", 11, 3)


def test_cross_scores_are_looked_up_by_example_and_passage():
    cross = CrossScores(
        4, np.array([1, 3]), np.array([[7, 5, -1], [2, 9, 4]]), np.array([[1.0, 2.0, np.nan], [3.0, np.nan, 4.0]])
    )
    examples = np.array([0, 1, 3])
    assert cross.candidates(examples).tolist() == [[-1, -1, -1], [7, 5, -1], [2, -1, 4]]
    found = cross.scores(examples, np.broadcast_to(np.array([5, 4, 9, -1]), (3, 4)))
    np.testing.assert_array_equal(found, [[np.nan] * 4, [2.0, np.nan, np.nan, np.nan], [np.nan, 4.0, np.nan, np.nan]])


def test_dense_scores_are_cosines():
    queries = np.array([[1, 0], [0.6, 0.8]], dtype=np.float16)
    passages = np.array([[0, 1], [1, 0], [0.8, 0.6]], dtype=np.float16)
    dense = DenseScores(queries, passages)
    np.testing.assert_allclose(dense.scores(np.array([1]), np.array([[0, 2, -1]])), [[0.8, 0.96, np.nan]], rtol=1e-2)
    np.testing.assert_allclose(dense.columns(np.array([0, 1]), np.array([1, 0])), [[1, 0], [0.6, 0.8]], rtol=1e-2)
    assert dense.nearest(1, np.array([0, 1, 2]), 2).tolist() == [2, 0]


@pytest.fixture
def pool(tmp_path, tiny_tokenizer, put_jsonl, make_pairs):
    path = put_jsonl(tmp_path / "p.jsonl", make_pairs(6, 3))
    return Pool(Data((Source(path),)), tiny_tokenizer, (1, 2), seed=1)


@pytest.fixture
def reader(tiny_base, tiny_tokenizer):
    wanted = Model(max_length=type(Model().max_length)(16, 32))
    return TextReader(tiny_tokenizer, model_config(tiny_base, wanted, "x"))


def test_candidates_begin_with_the_positive(pool, reader):
    found = find_candidates(pool, reader, np.array([0, 5]), 4, None, silent)
    assert found[:, 0].tolist() == [pool.examples[0].positives[0], pool.examples[5].positives[0]]
    for row in found:
        filled = row[row >= 0]
        assert len(set(filled.tolist())) == len(filled)


def test_teachers_give_targets_where_they_know_something(pool):
    settings = Distillation(
        cache=None,
        dense=DenseTeacher(None),
        cross=CrossTeacher(None, temperature=3.0),
        terms={"weighted": 1.0, "dense": 0.5},
        dense_terms={"weighted": 0.25},
        candidates=1,
    )
    cross = CrossScores(3, np.array([0]), np.array([[4, 6]]), np.array([[1.0, 2.0]], dtype=np.float32))
    dense = DenseScores(np.eye(3, dtype=np.float16), np.eye(8, 3, dtype=np.float16))
    teachers = Teachers(settings, dense, cross)
    examples, columns = np.array([0, 1]), np.array([6, 0])
    (first, second) = teachers.targets("weighted", examples, columns)
    assert (first[0], first[1], first[3]) == ("cross", 1.0, 3.0)
    np.testing.assert_array_equal(first[2], [[2.0, np.nan], [np.nan, np.nan]])
    assert (second[0], second[1]) == ("teacher", 0.25)
    np.testing.assert_array_equal(second[2], [[0, 1], [0, 0]])
    assert teachers.targets("full", examples, columns) == []
    assert teachers.factor("weighted") == 1.25
    assert teachers.judge is dense
    drawn = teachers.drawn_candidates(examples, np.random.default_rng(0))
    assert drawn.shape == (2, 1)
    assert drawn[0, 0] in (4, 6)
    assert drawn[1, 0] == -1
    assert Teachers(None).targets("weighted", examples, columns) == []


def test_what_teachers_know_is_made_once(tmp_path, pool, reader, tiny_base, monkeypatch):
    settings = Distillation(cache=tmp_path / "cache", dense=DenseTeacher(tiny_base, max_length=32))
    first = load_teachers(settings, pool, reader, np.ones(1), 1, silent)

    def never(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr("sidr_rag.train.teachers.DenseModel.vectors", never)
    second = load_teachers(settings, pool, reader, np.ones(1), 1, silent)
    numbers = np.arange(4)
    np.testing.assert_array_equal(first.dense.vectors(numbers, "passage"), second.dense.vectors(numbers, "passage"))
    np.testing.assert_allclose(np.linalg.norm(first.dense.vectors(numbers, "query"), axis=1), 1, rtol=2e-3)


def test_the_shared_cross_encoder_ranks_the_answer_first(shared_models, tokenizer):
    model = shared_models / "ms-marco-MiniLM-L12-v2-int8"
    config = model_config(model, Model(), "x")
    reader = TextReader(tokenizer, config)
    passages = [
        "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
        "New York City is famous for the Metropolitan Museum of Art.",
        "Berlin is well known for its museums.",
    ]
    question = reader.query("How many people live in Berlin?")
    scores = CrossEncoder(model, torch.float32).scores([question] * 3, [reader.passage(p)[1:] for p in passages])
    # The published example of this model family gives about 8.6 and -4.3 for the first two.
    assert scores[0] > 5 > -3 > scores[1]
    assert scores[0] > scores[2] > scores[1]


def test_a_model_without_a_classifier_is_refused(tiny_base):
    with pytest.raises(InvalidInputError, match="cross"):
        CrossEncoder(tiny_base)


def test_scored_queries_are_spread_by_the_mix(tmp_path, tiny_tokenizer, put_jsonl, make_pairs):
    big = put_jsonl(tmp_path / "big.jsonl", make_pairs(20, 3))
    small = put_jsonl(tmp_path / "small.jsonl", make_pairs(3, 2, seed=4))
    pool = Pool(Data((Source(big), Source(small))), tiny_tokenizer, (1, 2), seed=1)
    taught = _taught(pool, 20, np.array([0.75, 0.25]), seed=3)
    assert np.isin(taught, pool.by_source[0]).sum() == 15
    assert np.isin(taught, pool.by_source[1]).sum() == 5
    assert taught.tolist() == sorted(set(taught.tolist()))
    assert len(_taught(pool, None, np.array([0.75, 0.25]), seed=3)) == len(pool.examples)
    cross = CrossScores(len(pool.examples), taught, np.zeros((20, 2), np.int64), np.zeros((20, 2), np.float32))
    parts = Teachers(Distillation(tmp_path, cross=CrossTeacher(tmp_path)), cross=cross).taught(pool.by_source)
    assert [len(part) for part in parts] == [15, 5]
