"""Table 1: top-1/5/20 accuracy by answer strings (section 5.1, `results_wiki21m`)."""

from __future__ import annotations

from benchmarks.paper.figures import Figures
from benchmarks.paper.rows import Claim, PaperTable, Row
from benchmarks.paper.setup import DENSE_NAME, SUCCESS, Dense, Setup
from sidr_rag.eval import Bm25Search, EngineSearch
from sidr_rag.eval.report import Report
from sidr_rag.eval.searches import Search

SETS = ("squad-dev", "multispanqa-nq", "covidqa-passages")
_SIZES = (5, 20, 100)
_PAPER_SETS = ("NQ", "TQA", "WQ")
_PAPER = {
    "DPR": "46.0/68.9/80.2 54.1/71.5/80.0 37.4/59.7/73.2",
    "VDR": "43.8/68.0/79.9 52.9/71.3/79.3 37.1/58.7/72.5",
    "SiDR full": "49.1/69.3/80.7 56.2/73.0/80.5 40.2/61.0/73.2",
    "BM25": "22.7/43.6/62.9 48.2/66.4/76.4 19.5/42.6/62.8",
    "VDR beta": "12.3/30.0/46.8 16.9/31.6/45.9 7.7/22.4/39.2",
    "SiDR beta": "39.8/62.9/76.3 50.4/70.7/79.5 32.1/54.1/69.8",
    "BM25 + DPR (m=5)": "32.2/43.6/62.9 54.8/66.4/76.4 28.0/42.6/62.8",
    "BM25 + DPR (m=20)": "39.4/55.5/62.9 55.4/71.0/76.4 34.6/53.2/62.8",
    "BM25 + DPR (m=100)": "44.4/63.6/73.5 56.6/72.3/80.5 39.9/59.2/70.2",
    "SiDR beta (m=5)": "44.9/60.6/76.4 54.9/70.7/79.6 38.0/54.1/69.8",
    "SiDR beta (m=20)": "49.5/68.2/76.4 56.7/72.9/79.5 39.6/59.5/69.8",
    "SiDR beta (m=100)": "50.3/70.7/80.6 56.8/73.3/81.3 41.5/62.0/73.5",
}
_COMMANDS = {
    "DPR": "sidr-rag train configs/paper-dpr-nq.yaml; "
    "python -m benchmarks.paper.dense_eval DPR --model runs/paper-dpr-nq/last",
    "VDR": "sidr-rag train configs/paper-vdr-nq.yaml; "
    "sidr-rag eval DPR --search full-binary --model runs/paper-vdr-nq/last",
    "SiDR full": "sidr-rag train configs/paper-nq.yaml; "
    "sidr-rag eval DPR --search full-binary --model runs/paper-nq/last",
    "BM25": "sidr-rag eval DPR --search bm25",
    "VDR beta": "sidr-rag eval DPR --search beta-binary --model runs/paper-vdr-nq/last",
    "SiDR beta": "sidr-rag eval DPR --search beta-binary --model runs/paper-nq/last",
    **{
        f"BM25 + DPR (m={m})": f"python -m benchmarks.paper.dense_eval DPR --model runs/paper-dpr-nq/last --rerank {m}"
        for m in _SIZES
    },
    **{f"SiDR beta (m={m})": f"sidr-rag eval DPR --search late-binary@{m} --model runs/paper-nq/last" for m in _SIZES},
}
_NOT_HERE = "no VDR checkpoint is here; one trained at a small budget stands in table 4 (w/o SP objective)"
_OURS = {
    "SiDR beta, k = 768": "ours: V_theta(q) cut at 768 dimensions; the model was trained with 64",
    "beta with levels (the default)": "ours: not in the paper",
    "late (m=100), blended (the default)": "ours: not in the paper",
    "late (m=100), both heads": "ours: not in the paper",
}


def searches(dense: Dense) -> dict[str, Search]:
    """Every row that the engine and bm25s give, by the row's name."""
    found: dict[str, Search] = {"SiDR full": EngineSearch("binary", search="full"), "BM25": Bm25Search()}
    found["SiDR beta"] = EngineSearch("binary")
    for m in _SIZES:
        found[f"BM25 + DPR (m={m})"] = Bm25Search(rerank=m, reranker=dense)
        found[f"SiDR beta (m={m})"] = EngineSearch("binary", rerank=m, reranker="theta")
    found["SiDR beta, k = 768"] = EngineSearch("binary", max_active_dims=768)
    found["beta with levels (the default)"] = EngineSearch()
    found["late (m=100), blended (the default)"] = EngineSearch(rerank=100, reranker="blend")
    found["late (m=100), both heads"] = EngineSearch(rerank=100, reranker="both")
    return found


def empty() -> PaperTable:
    """The paper's rows without figures of ours."""
    return _table({})


def run(setup: Setup) -> PaperTable:
    """Measure the sets in turn."""

    def make(name: str) -> Report:
        data = setup.dataset(name)
        dense = setup.dense(data)
        return setup.report(data, searches(dense), SUCCESS, {"DPR": dense.run()})

    found, whole = setup.measured("accuracy", SETS, make)
    table = _table(found)
    table.small, table.whole = setup.small, whole
    return table


def _table(found: dict[str, Figures]) -> PaperTable:
    notes = {
        "DPR": f"ours: {DENSE_NAME}, dense, in the place of DPR",
        "VDR": _NOT_HERE,
        "VDR beta": _NOT_HERE,
        "BM25": "ours: bm25s, stemmed, k1 = 0.9, b = 0.4",
        **{f"BM25 + DPR (m={m})": f"ours: {DENSE_NAME} in the place of DPR" for m in _SIZES},
        **_OURS,
    }
    rows = []
    for name in (*_PAPER, *_OURS):
        values = [value.replace("/", " / ") for value in _PAPER.get(name, "").split()]
        paper = dict(zip(_PAPER_SETS, values, strict=True)) if values else {}
        ours = {s: f.percents(name, SUCCESS) for s, f in found.items() if name in f}
        rows.append(Row(name, paper, ours, _COMMANDS.get(name, ""), notes.get(name, "")))
    return PaperTable(
        "accuracy",
        "Table 1: accuracy by answer strings, top 1 / 5 / 20, per cent",
        [
            "DPR is a folder with psgs_w100.tsv and nq-test.qa.csv (or trivia-test, webq-test, with the model of "
            "`configs/paper-trivia.yaml` or `configs/paper-webq.yaml`).",
            "Ours: squad-dev with the questions of XQuAD (2,067 paragraphs, 1,190 questions), multispanqa-nq (2,545, "
            "653; real Natural Questions queries) and covidqa-passages (3,137, 1,149). Corpora are four orders of "
            "magnitude smaller than Wikipedia, so top 5 and top 20 are near their ceiling.",
            "SiDR: the bundled model as it was trained: 64 active dimensions of queries (8 in beta search, chosen on "
            "dev sets; there a last layer of their own reads them) and 256 of passages, with the text's own tokens; "
            "one binary level; late by V_theta alone, as in the paper.",
        ],
        rows,
        _claims(found),
        [
            "Re-ranking 5 passages cannot change what is among the top 5, yet SiDR beta (m=5) has a top 5 of 60.6 on "
            "NQ where SiDR beta has 62.9 (and a top 20 of 76.4 where it has 76.3).",
            "SiDR beta (m=20) re-ranks 20 passages, and its top 20 on NQ is 76.4, not SiDR beta's 76.3; rounding can "
            "explain that one.",
        ],
    )


def _claims(found: dict[str, Figures]) -> list[Claim]:
    def pair(a: str, b: str) -> dict[str, tuple[float, float]]:
        return {s: (f.percent(a, SUCCESS[0]), f.percent(b, SUCCESS[0])) for s, f in found.items()}

    trained = (
        f"multispanqa-nq asks questions of NQ. {DENSE_NAME} was trained on a hundred thousand of them (its model "
        "card), the bundled model on 3,004: there, DPR's place is taken by a stronger one."
    )
    beta = (
        "The default model is general, and not trained on the questions' own collection, as the paper's is on NQ. With "
        "levels and idf (row 'beta with levels') the same vectors pass BM25 on all three: what a binary bag lacks is "
        "the corpus's weights."
    )
    words = (
        "On questions of NQ (multispanqa-nq) it agrees. On all three sets it agrees for the quarter of the questions "
        "that share fewest words with their passage, and less the more they share: see the experiment below."
    )
    sizes = (
        "As for m = 20: where words decide, the more candidates V_theta orders alone, the more of beta's order is "
        "lost; see the experiment below."
    )
    dense = (
        "A second stage that alone is behind the first (rows DPR and BM25) pulls it down, the more the larger m is. In "
        "the paper DPR is far ahead of BM25 on NQ; here questions and passages share more words."
    )
    level = "Within 0.6 points on all three: what full search puts first is nearly always among the 100 best of beta."
    return [
        Claim("SiDR full is ahead of DPR (NQ, top 1)", (49.1, 46.0), pair("SiDR full", "DPR"), trained),
        Claim("SiDR beta is ahead of BM25 (NQ, top 1)", (39.8, 22.7), pair("SiDR beta", "BM25"), beta),
        Claim("SiDR full is ahead of SiDR beta (NQ, top 1)", (49.1, 39.8), pair("SiDR full", "SiDR beta"), words),
        Claim("Late (m=20) is ahead of beta (NQ, top 1)", (49.5, 39.8), pair("SiDR beta (m=20)", "SiDR beta"), words),
        Claim(
            "Late (m=100) is ahead of (m=5) (NQ, top 1)",
            (50.3, 44.9),
            pair("SiDR beta (m=100)", "SiDR beta (m=5)"),
            sizes,
        ),
        Claim("Late (m=100) is ahead of full (NQ, top 1)", (50.3, 49.1), pair("SiDR beta (m=100)", "SiDR full"), level),
        Claim(
            "BM25 + DPR (m=100) is ahead of BM25 (NQ, top 1)", (44.4, 22.7), pair("BM25 + DPR (m=100)", "BM25"), dense
        ),
        Claim(
            "SiDR beta (m=100) is ahead of BM25 + DPR (m=100) (NQ, top 1)",
            (50.3, 44.4),
            pair("SiDR beta (m=100)", "BM25 + DPR (m=100)"),
            trained,
        ),
    ]
