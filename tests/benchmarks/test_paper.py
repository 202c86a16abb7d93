"""The paper's tables: their values, their page, their configurations, and every module at tiny sizes."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
CONFIGS = sorted((ROOT / "configs").glob("paper-*.yaml"))


@pytest.fixture
def results_folder(tmp_path, monkeypatch):
    """Results and page in a temporary folder."""
    from benchmarks.paper import page, rows

    monkeypatch.setattr(rows, "FOLDER", tmp_path)
    monkeypatch.setattr(page, "MARKDOWN", tmp_path / "paper.md")
    return tmp_path


@pytest.fixture(scope="module")
def run_tiny(tmp_path_factory):
    """A function table -> it at tiny sizes; indexes and embeddings are shared."""
    if not (SHARED / "data").is_dir() or not (SHARED / "models" / "all-MiniLM-L6-v2").is_dir():
        pytest.skip("the shared data is not on this machine")
    pytest.importorskip("torch")
    from benchmarks.paper.__main__ import run_table
    from benchmarks.paper.setup import Setup

    setup = Setup(tmp_path_factory.mktemp("paper"), small=True)
    return lambda name: run_table(name, setup)


def _by_name(table):
    return {row.name: row for row in table.rows}


def test_a_claim_agrees_where_the_figures_differ_in_the_papers_direction():
    from benchmarks.paper.rows import Claim

    claim = Claim("a is ahead", (50.3, 49.1), {"x": (2.0, 1.0), "y": (1.0, 1.0)})
    assert claim.agrees("x")
    assert not claim.agrees("y")
    assert claim.verdict == "1 of 2 agree"
    assert Claim("a is faster", (1.0, 2.0), {"x": (1.0, 2.0)}, lower=True).verdict == "agrees"
    assert Claim("a is faster", (1.0, 2.0), {"x": (3.0, 2.0)}, lower=True).verdict == "disagrees"
    assert Claim("a", (1.0, 2.0), {}).verdict == "not run yet"


def test_a_table_comes_back_from_its_file_and_the_page_shows_both_sides(results_folder):
    from benchmarks.paper.page import write_page
    from benchmarks.paper.rows import Claim, PaperTable, Row, read, table_of

    made = PaperTable("costs", "Costs", ["how"], whole=False)
    made.rows = [
        Row("SiDR", {"NQ": 39.8}, {"squad-dev": 71.25}, "sidr-rag eval DPR", "a | b"),
        Row("VDR", {"NQ": 12.3}),
    ]
    made.claims = [
        Claim("a is ahead of b", (2.0, 1.0), {"squad-dev": (1.0, 3.0)}),
        Claim("c", (2.0, 1.0), {"s": (1.0, 3.0)}, "why"),
    ]
    made.write()
    back = table_of(read("costs"))
    assert back.rows == made.rows
    assert back.claims == made.claims
    text = write_page(lambda name: PaperTable(name, f"empty {name}", []), ["costs", "terms"]).read_text(
        encoding="utf-8"
    )
    assert "| SiDR | 39.8 | 71.2 | `sidr-rag eval DPR` | a \\| b |" in text
    assert "| VDR | 12.3 |  |  |  |" in text
    assert "| a is ahead of b | 2 and 1 | squad-dev: 1 and 3 | disagrees | open |" in text
    assert "| disagrees | why |" in text
    assert "**some sets are not measured yet**" in text
    assert "## empty terms" in text
    assert "**not run yet**" in text
    today = PaperTable("costs", "", [], claims=[Claim("c", (2.0, 1.0), {}, "read anew")])
    text = write_page(lambda name: today, ["costs"]).read_text(encoding="utf-8")
    assert "| disagrees | read anew |" in text
    assert "| disagrees | open |" in text


def test_a_trial_is_never_written(results_folder):
    from benchmarks.paper.rows import PaperTable

    with pytest.raises(ValueError, match="small sizes"):
        PaperTable("costs", "Costs", [], small=True).write()
    assert list(results_folder.iterdir()) == []


def test_a_table_that_was_cut_off_goes_on_with_its_next_set(tmp_path):
    from types import SimpleNamespace

    from benchmarks.paper.figures import Parts
    from benchmarks.paper.setup import Setup
    from sidr_rag.eval.costs import Cost, Seconds

    measured = []

    def make(name):
        measured.append(name)
        cost = Cost(3, 30, 1.1, 9, Seconds(), Seconds())
        result = SimpleNamespace(mean=lambda measure: 0.25, cost=cost)
        outside = SimpleNamespace(mean=lambda measure: 0.5, cost=None)
        results = {"beta": result, "dense": outside}
        return SimpleNamespace(measures=("RR@10",), results=results, n_passages=30, n_queries=3)

    found, whole = Setup(tmp_path, only=["b"]).measured("terms", ["a", "b"], make)
    assert (list(found), whole) == (["b"], False)
    assert found["b"].percent("beta", "RR@10") == 25.0
    assert found["b"].percents("dense", ["RR@10", "RR@10"]) == "50.0 / 50.0"
    assert found["b"].texts == {"beta": 33, "dense": None}
    again, whole = Setup(tmp_path).measured("terms", ["a", "b"], make)
    assert (measured, whole) == (["b", "a"], True)
    assert again["b"] == found["b"]
    # A whole table leaves nothing behind, so that the next run measures anew.
    assert "b" not in Parts(tmp_path / "paper" / "parts", "terms", Setup(tmp_path).encoder.fingerprint)


def test_every_row_of_every_table_is_there_without_any_run(results_folder):
    from benchmarks.paper.__main__ import TABLES, _empty
    from benchmarks.paper.page import write_page

    rows = {name: sum(bool(row.paper) for row in _empty(name).rows) for name in TABLES}
    # As many rows as the paper's tables have, with the row of the table of terms that needs training twice.
    assert rows == {
        "accuracy": 12,
        "overlap": 0,
        "beir": 18,
        "latency": 7,
        "ablations": 19,
        "in_training": 9,
        "terms": 9,
        "costs": 13,
        "chunks": 0,
    }
    text = write_page(_empty, TABLES).read_text(encoding="utf-8")
    assert text.count("**not run yet**") == len(TABLES)
    assert "/work" not in text


def test_committed_figures_belong_to_the_rows_of_today():
    from benchmarks.paper.__main__ import TABLES, _empty
    from benchmarks.paper.rows import read, table_of

    for name in TABLES:
        values = read(name)
        if values is not None:
            table = table_of(values)
            assert [row.name for row in table.rows if row.paper] == [r.name for r in _empty(name).rows if r.paper], name
            assert any(row.ours for row in table.rows), name
            assert all(Path(ROOT / "benchmarks" / "results" / "paper" / plot).is_file() for plot in table.plots)


def test_the_papers_averages_are_those_of_its_figures():
    from benchmarks.paper.beir import empty

    for row in empty().rows:
        if row.paper and row.name not in ("UniCOIL", "SiDR beta"):  # the oddities
            figures = [row.paper[c] for c in list(row.paper)[1:13]]
            assert sum(figures) / 12 == pytest.approx(row.paper["Avg."], abs=0.06), row.name


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configurations_are_the_papers(path):
    pytest.importorskip("yaml")
    from sidr_rag.train import load_train_config

    config = load_train_config(path)
    if path.stem == "paper-ablation":
        assert config.steps.total == 300
        return
    assert config.steps.full_batch * 4 == 128
    assert config.optimizer.learning_rate == 2e-5
    assert config.steps.active_dims == 768
    assert not config.model.shared_encoder
    per_query = config.weight("query_bot"), config.weight("bot_passage")
    if "dpr" in path.stem:
        assert set(config.terms) == {"dense"}
    elif "vdr" in path.stem:
        assert set(config.terms) == {"full"}
    else:
        assert per_query == (0.5, 0.5)
        assert config.weight("full") == 1.0
        assert config.retrieval.m == (0 if "msmarco" in path.stem else 20)
    assert config.steps.passage_active_dims == (1 if path.stem == "paper-nq-lex" else 768)


def test_commands_name_configurations_that_are_there():
    import re

    from benchmarks.paper.__main__ import TABLES, _empty

    commands = " ".join(row.command for name in TABLES for row in _empty(name).rows)
    named = set(re.findall(r"configs/[a-z-]+\.yaml", commands))
    assert {"configs/paper-nq.yaml", "configs/paper-dpr-nq.yaml", "configs/paper-msmarco.yaml"} <= named
    assert all((ROOT / name).is_file() for name in named)


def test_searches_that_commands_name_are_known():
    import re

    from benchmarks.paper.__main__ import TABLES, _empty
    from sidr_rag.eval import named_searches

    commands = " ".join(row.command for name in TABLES for row in _empty(name).rows)
    names = set(re.findall(r"--search (\S+?)(?:;|\s|$)", commands))
    assert {"full-binary", "beta-binary", "late-binary@100", "theta:lex"} <= names
    assert set(named_searches(sorted(names))) == names


def test_recut_keeps_every_word_in_order():
    from benchmarks.paper.chunks import recut, varied_sizes
    from sidr_rag.eval import Dataset
    from sidr_rag.types import Passage

    words = [f"w{i}" for i in range(1000)]
    own = [
        Passage("a0", " ".join(words[:300]), "A"),
        Passage("b0", "x y", "B"),
        Passage("a1", " ".join(words[300:]), "A"),
    ]
    data = Dataset("d", "test", lambda: iter(own), {"q": "w3"}, {"q": {"a0": 1}}, {"q": ["w3"]})
    for sizes in ([100], varied_sizes(50)):
        cut = list(recut(data, sizes).passages())
        assert " ".join(p.text for p in cut if p.title == "A").split() == words
        assert [p.text for p in cut if p.title == "B"] == ["x y"]
        lengths = [len(p.text.split()) for p in cut if p.title == "A"]
        assert lengths[:-1] == list(sizes * 20)[: len(lengths) - 1]
    assert min(varied_sizes(1000)) >= 50
    assert max(varied_sizes(1000)) <= 200


def test_times_leave_out_the_extremes(monkeypatch):
    from benchmarks.paper import stages

    ticks = iter([0, 100, 0, 1, 0, 2, 0, 3])
    monkeypatch.setattr(stages.time, "process_time", lambda: next(ticks))
    assert stages.trimmed(lambda: None, runs=4) == pytest.approx(2.5)
    assert stages.shown_seconds(0.0041) == "4.1 ms"
    assert stages.shown_seconds(7200) == "2 h"
    assert stages.shown_seconds(300) == "5 m"


def test_dense_search_is_exact():
    import numpy as np

    from benchmarks.paper.stages import dense_search

    random = np.random.default_rng(0)
    vectors, queries = random.normal(size=(50, 8)), random.normal(size=(3, 8))
    expected = np.argsort(-(queries @ vectors.T), axis=1)[:, :7]
    assert (dense_search(vectors, queries, 7) == expected).all()


def test_an_encoder_that_remembers_gives_the_same_vectors():
    import numpy as np

    from benchmarks.paper.remembering import RememberingEncoder
    from sidr_rag.costs import Ledger
    from sidr_rag.encoder import load_encoder

    encoder = load_encoder(backend="numpy")
    remembering = RememberingEncoder(encoder)
    texts = ["what is copper used for", "heart", "what is copper used for"]
    for representation in ("theta", "lex", "bin", "bot"):
        found = remembering.encode_queries(texts, representation=representation).toarray()
        expected = encoder.encode_queries(texts, representation=representation).toarray()
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    encoder.forget_recent()
    with Ledger().booking() as costs:
        dense = remembering.encode_dense(texts, "query")
    assert costs.queries == 0, "it came along with V_theta"
    np.testing.assert_allclose(dense, encoder.encode_dense(texts, "query"), atol=1e-5)


def test_a_dense_run_over_blocks_is_the_whole_ranking_and_goes_on(tmp_path, monkeypatch):
    import numpy as np

    from benchmarks.paper import dense_eval
    from sidr_rag.eval import Dataset
    from sidr_rag.types import Passage

    monkeypatch.setattr(dense_eval, "_BLOCK", 4)
    read = []

    def embed(texts):
        read.extend(texts)
        return np.array([[float(text), 1.0] for text in texts], np.float32)

    own = [Passage(f"p{i}", str(i)) for i in (3, 9, 1, 7, 5, 8, 2)]
    data = Dataset("d", "test", lambda: iter(own), {"q": "1"}, {"q": {"p9": 1}})
    model = dense_eval.DenseModel(lambda texts: np.array([[1.0, 0.0]] * len(texts), np.float32), embed)
    run = dense_eval.dense_run(data, model, tmp_path, depth=3)
    assert [i for i, _ in run["q"]] == ["p9", "p8", "p7"]
    n_read = len(read)
    assert dense_eval.dense_run(data, model, tmp_path, depth=3) == run
    assert len(read) == n_read
    assert model.rerank("1", own[:2], np.zeros(2, np.float32)).tolist() == [3.0, 9.0]


@pytest.mark.benchmark
def test_tables_of_searches_run_at_tiny_sizes(run_tiny):
    terms = run_tiny("terms")
    assert set(_by_name(terms)["BoT overlap"].ours) == {"multispanqa-nq"}
    assert len(_by_name(terms)) == 9 + 9
    costs = _by_name(run_tiny("costs"))
    n_queries, n_passages = 3, 12
    texts = n_queries * (1 + n_passages)
    assert costs["BM25"].ours["cost, multispanqa-nq"] == "0 (0.00%)"
    assert costs["SiDR beta"].ours["cost, multispanqa-nq"] == f"{n_queries} ({n_queries / n_passages:.2%})"
    assert int(costs["SiDR beta (m=100)"].ours["cost, multispanqa-nq"].split()[0]) <= texts
    assert costs["SiDR full"].ours["cost, multispanqa-nq"] == f"15 ({15 / n_passages:.2%})"
    assert costs["BM25 + VDR"].ours == {}


@pytest.mark.benchmark
def test_tables_of_times_run_at_tiny_sizes(run_tiny):
    latency = _by_name(run_tiny("latency"))
    assert latency["SiDR beta"].ours["E(D)"] == "/"
    assert latency["SiDR beta (m=20)"].ours["E(p)"] != "/"
    assert latency["SiDR full"].ours["T(D)"] == "/"
    training = _by_name(run_tiny("in_training"))
    assert training["SiDR beta"].ours["s a batch"] > 0
    assert training["density a=512"].ours["storage, GB"] > 1.5 * training["density a=256"].ours["storage, GB"]


def test_chunks_run_at_tiny_sizes(run_tiny):
    pytest.importorskip("matplotlib")
    rows = _by_name(run_tiny("chunks"))
    assert rows["50 words"].ours["chunks"] > rows["100 words"].ours["chunks"]
    assert rows["400 words"].ours == {}


def test_fixed_negatives_hold_no_answer(tmp_path):
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared data is not on this machine")
    pytest.importorskip("torch")
    import gzip

    from benchmarks.paper.setup import Setup
    from benchmarks.paper.trained import configured, place
    from sidr_rag.eval import has_answer

    setup = Setup(tmp_path, small=True)
    config = configured("other-source", 2, setup, steps=1)
    with gzip.open(config.data.sources[0].path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    assert len(records) == 24
    assert any(record["negatives"] for record in records)
    assert not any(has_answer(text, r["answers"]) for r in records for text in r["negatives"] if r["answers"])
    assert config.output == place(setup, "other-source", 2, 1)
    assert config.retrieval.m == 0
    assert config.retrieval.negatives == 1
    assert configured("no-negatives", 1, setup).retrieval.negatives == 0
    assert set(configured("no-semi-parametric", 1, setup).terms) == {"full"}


@pytest.mark.benchmark
def test_ablations_train_and_measure_at_tiny_sizes(run_tiny):
    rows = _by_name(run_tiny("ablations"))
    assert "±" in rows["non-parametric: w/o SP objective"].ours["top 20"]
    assert rows["parametric: w/o neg"].ours == {}
    assert rows["parametric: w/o neg"].note.startswith("not run yet")


def test_a_remembering_cross_encoder_reads_each_pair_once():
    import numpy as np

    from benchmarks.paper.remembering import RememberingCross
    from sidr_rag.types import Passage

    read = []

    class Lengths:
        def scores(self, query, texts):
            read.extend((query, text) for text in texts)
            return np.array([float(len(query) * len(text)) for text in texts])

    model = RememberingCross(Lengths())
    passages = [Passage("a", "bb"), Passage("b", "cccc"), Passage("c", "d", "t")]
    nothing = np.zeros(3, np.float32)
    assert model.rerank("xyz", passages[:2], nothing[:2]).tolist() == [6.0, 12.0]
    assert model.rerank("xyz", passages[::-1], nothing).tolist() == [9.0, 12.0, 6.0]
    assert model.rerank("x", passages[:1], nothing[:1]).tolist() == [2.0]
    assert read == [("xyz", "bb"), ("xyz", "cccc"), ("xyz", "t d"), ("x", "bb")]


def test_words_in_common_are_shares_of_idf(tokenizer):
    import numpy as np

    from benchmarks.paper.overlap import words_in_common
    from sidr_rag.eval import Dataset
    from sidr_rag.types import Passage

    own = [Passage("a", "copper harbor"), Passage("b", "copper winter"), Passage("c", "garden")]
    queries = {"all": "copper harbor", "part": "copper harbor", "none": "garden", "best": "copper winter"}
    qrels = {"all": {"a": 1}, "part": {"b": 1}, "none": {"a": 1, "gone": 1, "c": 0}, "best": {"c": 1, "b": 2}}
    data = Dataset("d", "test", lambda: iter(own), queries, qrels)
    copper, harbor = np.log1p((3 - 2 + 0.5) / 2.5), np.log1p((3 - 1 + 0.5) / 1.5)
    expected = [1.0, copper / (copper + harbor), 0.0, 1.0]
    assert words_in_common(data, tokenizer).tolist() == pytest.approx(expected)
