import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sidr_rag import SiDR
from sidr_rag.cli import main
from sidr_rag.encoder import load_encoder
from sidr_rag.errors import InvalidInputError
from sidr_rag.rerank.late import blend_scores
from sidr_rag.search.weighting import Weighting
from sidr_rag.train import train
from sidr_rag.train.candidates import ReadCandidates
from sidr_rag.train.config import load_dev
from sidr_rag.train.dev import DevEvaluation
from sidr_rag.train.sections import Dev, DevSet
from sidr_rag.train.settings import plain
from sidr_rag.train.tune import climbed, tune

START = Weighting((1, 2), (1.0, 0.4), 1.0, 0.5, 0.4, 0.15)


def silent(_):
    pass


def test_the_climb_finds_a_hill():
    def value(w):
        blends = w.theta_blend, w.theta_blend if w.expansion_blend is None else w.expansion_blend
        far = (w.gains[1] - 0.7, w.idf_exponent - 0.4, blends[0] - 0.3, blends[1] - 0.1)
        return -sum(x**2 for x in far)

    best, reached = climbed(START, value)
    assert reached > -0.02
    assert best.gains[0] == 1.0
    chosen = best.idf_exponent, best.gains[1], best.theta_blend, best.expansion_blend
    assert chosen == pytest.approx((0.4, 0.7, 0.3, 0.1), abs=0.1)


def test_the_climb_stays_where_nothing_is_better():
    assert climbed(START, lambda w: 1.0 if w == START else 0.0) == (START, 1.0)


@pytest.fixture
def trained(tiny_config, tmp_path, put_jsonl, make_pairs):
    dev = put_jsonl(tmp_path / "dev.jsonl", make_pairs(20, 1, seed=9))
    config = tiny_config(dev={"sets": [{"path": str(dev)}]}, terms={"query_bot": {}}, steps={"total": 2})
    return config, train(config, steps=2, show=silent)


def test_constants_are_chosen_and_written(trained):
    config, folder = trained
    before = (folder / "model.safetensors").read_bytes()
    plan = tune(folder, config.dev, active_dims=(8, 16), binary_dims=(4, 8), candidates=10, write=False, show=silent)
    assert "weighting" not in json.loads((folder / "config.json").read_text(encoding="utf-8"))
    chosen = tune(folder, config.dev, active_dims=(8, 16), binary_dims=(4, 8), candidates=10, show=silent)
    assert chosen == plan
    assert chosen.active_dims in (8, 16)
    assert chosen.binary_dims in (4, 8, 16)
    assert chosen.binary_dims <= chosen.active_dims
    assert 0 <= chosen.blend <= 1
    assert chosen.late >= 0
    loaded = load_encoder(folder, backend="numpy").config
    assert Weighting.from_mapping(loaded.weighting) == chosen.weighting
    assert loaded.max_active_dims.query == chosen.active_dims
    assert loaded.rerank_blend == chosen.blend
    assert loaded.binary_active_dims == chosen.binary_dims
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(("terms", "reranker"), [({"dense": {}}, "dense"), ({"full": {}}, "theta")])
def test_the_blend_is_tuned_with_the_second_stage_that_late_search_takes(
    tiny_config, tmp_path, put_jsonl, make_pairs, monkeypatch, terms, reranker
):
    pairs = [{"query": pair["query"], "text": pair["text"]} for pair in make_pairs(20, 1, seed=9)]
    dev = Dev(sets=(DevSet(put_jsonl(tmp_path / "dev.jsonl", pairs)),))
    steps = {"total": 2, "beta_batch": 8, "full_batch": 4, "beta_per_full": 0}
    folder = train(tiny_config(terms=terms, steps=steps), show=silent)
    seen = []
    second_stage = DevEvaluation.second_stage

    def looked_at(self, passage, encoded, first, weighting, places=None):
        seen.append((first, second_stage(self, passage, encoded, first, weighting, places)))
        return seen[-1][1]

    monkeypatch.setattr(DevEvaluation, "second_stage", looked_at)
    tune(folder, dev, active_dims=(8,), candidates=20, dtype="float32", show=silent)
    ((first, second),) = seen
    numbers = [str(i) for i in range(len(pairs))]
    with SiDR.from_texts([p["text"] for p in pairs], ids=numbers, model=folder, backend="numpy") as sidr:
        assert (sidr.encoder.config.dense is not None) is ("dense" in terms)
        for pair, (seqs, _), scores in zip(pairs, first, second, strict=True):
            found = sidr.search(pair["query"], k=20, rerank=20, reranker=reranker)
            own = {r.passage.id: r.score for r in found}
            assert own.keys() == {str(seq - 1) for seq in seqs}
            # What is kept is rounded: cosines by int8, V_theta by float16.
            assert scores.tolist() == pytest.approx([own[str(seq - 1)] for seq in seqs], rel=2e-3, abs=0.02)


def test_all_is_tuned_with_halves_of_what_each_part_gives_in_late_search(
    tiny_config, tmp_path, put_jsonl, make_pairs, monkeypatch
):
    pairs = [{"query": pair["query"], "text": pair["text"]} for pair in make_pairs(20, 1, seed=9)]
    dev = Dev(sets=(DevSet(put_jsonl(tmp_path / "dev.jsonl", pairs)),))
    steps = {"total": 2, "beta_batch": 8, "full_batch": 4, "beta_per_full": 0}
    folder = train(tiny_config(terms={"dense": {}, "maxsim": {}}, steps=steps), show=silent)
    seen = []
    scores_of = ReadCandidates.scores

    def looked_at(self, *query):
        parts = {part: scores_of(replace(self, parts=(part,)), *query) for part in self.parts}
        seen.append((parts, scores_of(self, *query)))
        return seen[-1][1]

    monkeypatch.setattr(ReadCandidates, "scores", looked_at)
    tune(folder, dev, active_dims=(8,), candidates=20, dtype="float32", show=silent)
    numbers = [str(i) for i in range(len(pairs))]
    with SiDR.from_texts([p["text"] for p in pairs], ids=numbers, model=folder, backend="numpy") as sidr:
        assert sidr.encoder.config.reranker == "all"
        for pair, (parts, scores) in zip(pairs, seen, strict=True):
            assert set(parts) == {"theta", "dense", "maxsim"}
            for part, near in (("theta", 0.02), ("dense", 0.004), ("maxsim", 1e-4)):
                found = sidr.search(pair["query"], k=20, rerank=20, reranker=part)
                assert sorted(parts[part]) == pytest.approx(sorted(r.score for r in found), abs=near)
            heads = blend_scores(parts["theta"], parts["dense"], 0.5)
            assert scores.tolist() == blend_scores(heads, parts["maxsim"], 0.5).tolist()


def test_tuning_needs_judged_sets_and_a_model_of_ours(trained, tmp_path, shared_models):
    _, folder = trained
    with pytest.raises(InvalidInputError, match=r"dev\.sets"):
        tune(folder, Dev(), show=silent)
    with pytest.raises(InvalidInputError, match="layout"):
        tune(shared_models / "all-MiniLM-L6-v2", Dev(sets=(DevSet(tmp_path),)), show=silent)


def test_the_command_line(trained, tmp_path, capsys):
    config, folder = trained
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(plain(config)), encoding="utf-8")
    command = ["tune", str(folder), str(path), "--candidates", "0", "--dry-run"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("beta ")
    assert main([*command, "--active-dims", "5"]) == 0
    assert "with 5 active dimensions" in capsys.readouterr().out.splitlines()[-1]


def test_the_command_line_takes_judged_sets_alone(trained, tmp_path, capsys):
    config, folder = trained
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "elsewhere" / "sets.yaml"
    judged = Path("..") / config.dev.sets[0].path.relative_to(tmp_path)
    path.write_text(yaml.safe_dump({"dev": {"sets": [{"path": str(judged)}]}}), encoding="utf-8")
    assert load_dev(path).sets[0].path.samefile(config.dev.sets[0].path)
    assert main(["tune", str(folder), str(path), "--candidates", "0", "--active-dims", "5", "--dry-run"]) == 0
    assert "with 5 active dimensions" in capsys.readouterr().out.splitlines()[-1]
    path.write_text(yaml.safe_dump({"dev": {"set": []}}), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"dev\.set is no setting"):
        load_dev(path)
