import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from sidr_rag.cli import main
from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.config import DenseHead
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.errors import InvalidInputError
from sidr_rag.search.weighting import Weighting
from sidr_rag.train import train
from sidr_rag.train.guide import Guide
from sidr_rag.train.journal import Journal, read_log
from sidr_rag.train.pool import Pool
from sidr_rag.train.sections import DenseTeacher
from sidr_rag.train.settings import plain
from sidr_rag.train.texts import TextReader

DEV = [{"query": "a0 a1", "text": "a200 a201"}, {"query": "a3 a4", "text": "a206 a207"}]


def silent(_):
    pass


def curve(folder):
    """Everything that was logged of the steps but what the clock gives."""
    timed = ("seconds", "retrieval_ms")
    steps = [line for line in read_log(folder / "log.jsonl") if line["event"] == "step"]
    return [{k: v for k, v in line.items() if k not in timed} for line in steps]


@pytest.fixture
def dev_set(tmp_path, put_jsonl, make_pairs):
    """Other queries and passages of the same topics."""
    return put_jsonl(tmp_path / "dev.jsonl", make_pairs(20, 1, seed=9))


def test_the_loss_falls_and_beta_search_improves(tiny_config, dev_set, tmp_path, put_jsonl, make_pairs):
    topics = put_jsonl(tmp_path / "few.jsonl", make_pairs(20, 8))
    config = tiny_config(
        data={"sources": [{"path": str(topics)}]},
        # Every dimension learns: a fresh model's top dimensions are no better than any others.
        steps={"total": 90, "beta_batch": 32, "full_batch": 8, "beta_per_full": 3, "active_dims": 999},
        retrieval={"m": 5, "bags": 5, "random_bags": 160},
        optimizer={"learning_rate": 1.0e-2, "warmup": 10},
        dev={"sets": [{"path": str(dev_set)}], "every": 90, "late": 10},
        checkpoint_every=1000,
    )
    folder = train(config, show=silent)
    lines = read_log(config.output / "log.jsonl")
    evaluations = [line["scores"] for line in lines if line["event"] == "dev"]
    losses = [line["loss_weighted"] for line in lines if line["event"] == "step"]
    assert np.mean(losses[-20:]) < 0.3 * np.mean(losses[:20])
    for search in ("binary", "weighted"):
        assert evaluations[-1][search]["dev"] > evaluations[0][search]["dev"] + 0.4
    assert 0 <= evaluations[-1]["late"]["dev"] <= 1
    assert folder == config.output / "best"
    weighting = json.loads((folder / "config.json").read_text(encoding="utf-8"))["weighting"]
    assert weighting["levels"] == [1, 2, 4]
    assert load_encoder(folder, backend="numpy").encode_queries(["a0 a1"]).dims.size > 2


def test_a_stopped_run_goes_on_with_the_same_values(tiny_config, tmp_path):
    whole = tiny_config(output=str(tmp_path / "whole"))
    train(whole, show=silent)
    parts = tiny_config(output=str(tmp_path / "parts"))
    train(parts, steps=5, show=silent)
    assert len(curve(parts.output)) == 5
    train(parts, show=silent)
    assert curve(parts.output) == curve(whole.output)
    # The averaged weights that are exported depend on all of the history.
    assert (parts.output / "last" / "model.safetensors").read_bytes() == (
        whole.output / "last" / "model.safetensors"
    ).read_bytes()


def test_a_stage_changes_the_loss_and_the_run_goes_on_with_it(tiny_config, tmp_path):
    apart = {"levels": [1, 2, 4], "gains": [1.0, 0.5, 0.5], "theta_blend": 0.5, "expansion_blend": 0.2}
    stage = {"after": 4, "active_dims": 12, "terms": {"query_bot": {"weight": 0.5, "temperature": 7.0}}}
    plainly = tiny_config(output=str(tmp_path / "plain"), corpus={"learned": False})
    changes = {"corpus": {"learned": False}, "stages": [{**stage, "corpus": apart}]}
    staged = tiny_config(output=str(tmp_path / "staged"), **changes)
    train(plainly, show=silent)
    folder = train(staged, show=silent)
    before, after = curve(plainly.output), curve(staged.output)
    assert after[:4] == before[:4]
    # The batch and its place in the run are the same, so every difference is the stage's.
    assert after[4]["loss_query_bot"] != before[4]["loss_query_bot"]
    assert after[4]["loss_weighted"] != before[4]["loss_weighted"]
    written = Weighting.from_mapping(load_encoder(folder, backend="numpy").config.weighting)
    assert written == replace(Weighting.from_mapping(apart), length_exponent=1e-4, length_slope=1e-4, idf_exponent=1e-4)
    for stop in (3, 4, 6):  # before the stage, as it begins, and within it
        parts = tiny_config(output=str(tmp_path / f"parts-{stop}"), **changes)
        train(parts, steps=stop, show=silent)
        train(parts, show=silent)
        assert curve(parts.output) == after, stop
        files = [run.output / "last" / "model.safetensors" for run in (parts, staged)]
        assert files[0].read_bytes() == files[1].read_bytes(), stop


def test_a_killed_run_goes_on_with_the_same_values(tiny_config, tmp_path):
    whole = tiny_config(output=str(tmp_path / "whole"))
    train(whole, show=silent)
    killed = tiny_config(output=str(tmp_path / "killed"))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(plain(killed)), encoding="utf-8")
    command = [sys.executable, "-m", "sidr_rag.cli", "train", str(tmp_path / "run.yaml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list((killed.output / "checkpoints").glob("*.pt")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=300)
    assert curve(killed.output) == curve(whole.output)


def test_sigterm_ends_with_a_checkpoint(tiny_config):
    config = tiny_config(steps={"total": 500, "beta_batch": 8, "full_batch": 4}, checkpoint_every=1000)
    seen = []

    def stop_soon(line):
        seen.append(line)
        if line.startswith("step 8/"):
            os.kill(os.getpid(), signal.SIGTERM)

    train(config, show=stop_soon)
    done = len(curve(config.output))
    assert 8 <= done < 500
    assert (config.output / "checkpoints" / f"step-{done:07d}.pt").exists()
    assert (config.output / "last" / "config.json").exists()


def test_a_checkpoint_of_another_configuration_is_refused(tiny_config):
    train(tiny_config(), steps=2, show=silent)
    with pytest.raises(InvalidInputError, match="another configuration"):
        train(tiny_config(seed=4), show=silent)
    train(tiny_config(seed=4), steps=1, restart=True, show=silent)


def test_a_damaged_checkpoint_is_named(tiny_config):
    config = tiny_config()
    train(config, steps=2, show=silent)
    path = config.output / "checkpoints" / "step-0000002.pt"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InvalidInputError, match=r"step-0000002\.pt is damaged"):
        train(config, show=silent)


def test_accumulated_batches_are_one_step(tiny_config):
    config = tiny_config(steps={"total": 3, "beta_batch": 8, "full_batch": 4, "accumulate": 3})
    train(config, show=silent)
    assert [line["step"] for line in curve(config.output)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("terms", "has", "lacks"),
    [
        ({"full": {}}, {"loss_full"}, {"loss_weighted", "loss_dense"}),
        ({"bot_passage": {"directions": "query"}}, {"loss_bot_passage"}, {"loss_full"}),
        ({"dense": {}}, {"loss_dense"}, {"loss_full"}),
        ({"weighted_full": {}}, {"loss_weighted_full"}, {"loss_full", "loss_weighted"}),
        ({"query_bot": {"temperature": 3.0}, "full": {"weight": 0.0}}, {"loss_query_bot"}, {"loss_full"}),
    ],
)
def test_each_term_can_stand_alone(tiny_config, terms, has, lacks):
    steps = {"total": 2, "beta_batch": 8, "full_batch": 4, "beta_per_full": 0, "passage_active_dims": None}
    config = tiny_config(terms=terms, steps=steps)
    train(config, show=silent)
    for line in curve(config.output):
        assert has <= set(line)
        assert not lacks & set(line)
        assert np.isfinite(line["loss"])


def test_weighted_full_is_full_where_the_weighting_leaves_the_query(tiny_config, tmp_path):
    def first_loss(term, **start):
        config = tiny_config(
            output=str(tmp_path / f"{term}-{len(start)}"),
            model={
                "dropout": 0.0,
                "max_active_dims": {"query": 24, "passage": 48},
                "max_length": {"query": 16, "passage": 32},
            },
            terms={term: {"temperature": 2.0}},
            corpus={"start": {"levels": [1], "gains": [1.0], "length_exponent": 0.0, **start}},
            steps={"total": 1, "full_batch": 8, "beta_per_full": 0},
        )
        train(config, show=silent)
        return curve(config.output)[0][f"loss_{term}"]

    plain = first_loss("full")
    # The exponent's least value in training is 0.0001.
    assert first_loss("weighted_full", idf_exponent=0.0) == pytest.approx(plain, rel=1e-3)
    assert first_loss("weighted_full", idf_exponent=1.0, theta_blend=0.5) != pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("change", [{"shared_encoder": False}, {"head": "mlm"}])
def test_other_shapes_train_and_load(tiny_config, change):
    shape = {"max_length": {"query": 16, "passage": 32}, "max_active_dims": {"query": 8, "passage": 16}}
    config = tiny_config(model={**shape, **change}, steps={"total": 3, "beta_batch": 8, "full_batch": 4})
    folder = train(config, show=silent)
    encoder = load_encoder(folder, backend="numpy")
    assert encoder.config.shared_encoder is change.get("shared_encoder", True)
    assert len(encoder.encode_passages(["a1 a2"])) == 1


def test_distillation_is_a_part_of_the_loss(tiny_config, tiny_base, tmp_path):
    config = tiny_config(
        distillation={
            "cache": str(tmp_path / "cache"),
            "dense": {"model": str(tiny_base), "max_length": 32},
            "terms": {},
            "dense_terms": {"weighted": 1.0, "full": 0.5},
            "anchor": 0.5,
        },
        terms={"weighted": {"weight": 0.5}},
    )
    train(config, show=silent)
    lines = curve(config.output)
    assert all(line["teacher_weighted"] >= 0 and line["anchor_query"] >= 0 for line in lines)
    full = [line for line in lines if line["kind"] == "full"]
    assert full
    assert all("teacher_full" in line and "anchor_passage" in line and "loss_full" not in line for line in full)
    # The anchor starts at the teacher's own vectors, but for dropout and float16.
    assert lines[0]["anchor_query"] < 0.1
    dense = load_encoder(config.output / "last", backend="numpy").config.dense
    assert dense == DenseHead("mean", normalize=True), "the anchor has taught it"


def test_a_guide_reads_as_it_goes(tiny_config, tiny_base, tmp_path):
    cache = tmp_path / "cache"
    guide = {"model": str(tiny_base), "pooling": "cls", "max_length": 32}
    terms = {"full": 0.5, "dense": 1.0, "weighted": 1.0}
    distillation = {"cache": str(cache), "guide": guide, "terms": {}, "dense_terms": terms}
    config = tiny_config(terms={"weighted": {}}, distillation=distillation)
    train(config, show=silent)
    lines = curve(config.output)
    full = [line for line in lines if line["kind"] == "full"]
    assert full
    assert all({"teacher_full", "teacher_dense"} <= set(line) for line in full)
    assert not any("teacher_weighted" in line for line in lines), "thousands of bags are not read"
    assert not cache.exists(), "it keeps nothing on disk"


def test_a_guide_knows_its_own_cosines(tiny_config, tiny_base, tiny_tokenizer):
    config = tiny_config()
    pool = Pool(config.data, tiny_tokenizer, (1, 2), config.seed)
    reader = TextReader(tiny_tokenizer, load_config(tiny_base))
    guide = Guide(DenseTeacher(tiny_base, 8, "cls"), pool, reader)
    examples, pids = np.array([3, 0, 3]), np.array([5, 1])
    found = guide.columns(examples, pids)
    read = [reader.query(pool.examples[i].query) for i in examples] + [reader.passage(pool.contents[i]) for i in pids]
    body = load_encoder(tiny_base, backend="numpy")._backbones.get_body("query")
    states = body.summaries([ids if len(ids) <= 8 else [*ids[:7], ids[-1]] for ids in read], "cls")
    queries, passages = states[:3], states[3:]
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(passages, axis=1)
    np.testing.assert_allclose(found, queries @ passages.T / lengths, atol=0.02)  # bfloat16, kept as float16
    np.testing.assert_array_equal(guide.columns(examples, pids), found)


@pytest.mark.parametrize(("terms", "learns"), [({"query_bot": {}, "full": {}}, False), ({"dense": {}}, True)])
def test_a_model_has_the_dense_head_only_where_it_has_learned_one(tiny_config, dev_set, terms, learns):
    dev = {"sets": [{"path": str(dev_set)}], "every": 2, "late": 10, "blend": 0.4}
    steps = {"total": 2, "beta_batch": 8, "full_batch": 4, "beta_per_full": 0}
    folder = train(tiny_config(terms=terms, steps=steps, dev=dev), show=silent)
    found = load_encoder(folder, backend="numpy").config
    assert (found.dense is not None) is learns
    assert found.rerank_blend == 0.4


def test_progress_can_be_read_by_a_person(tiny_config, dev_set):
    said = []
    train(tiny_config(dev={"sets": [{"path": str(dev_set)}], "every": 6}), show=said.append)
    text = "\n".join(said)
    assert "160 pairs of 1 sources" in text
    assert "step 12/12  loss" in text
    assert "% right" in text
    assert "own words" in text
    assert "nDCG@10 on dev sets" in text
    assert any(line.strip().startswith("'a") and line.count(" a") >= 12 for line in said)


def test_the_curves_are_drawn(tiny_config):
    pytest.importorskip("matplotlib")
    config = tiny_config()
    train(config, steps=4, show=silent)
    picture = (config.output / "curves.svg").read_text(encoding="utf-8")
    assert "<svg" in picture


def test_the_log_forgets_what_a_checkpoint_does_not_hold(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    for step in range(5):
        journal.write({"event": "step", "step": step})
    with journal.path.open("a", encoding="utf-8") as file:
        file.write('{"event": "st')  # cut off by a kill
    journal.start_at(3)
    assert [line["step"] for line in read_log(journal.path)] == [0, 1, 2]


def test_the_command_line(tiny_config, tmp_path, capsys):
    config = tiny_config()
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(plain(config)), encoding="utf-8")
    assert main(["train", str(path), "--steps", "2"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"model: {config.output / 'last'}"
    assert main(["train", str(path), "--steps", "2", "--seed", "9", "-o", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"model: {tmp_path / 'other' / 'last'}"
    logs = [read_log(folder / "log.jsonl") for folder in (config.output, tmp_path / "other")]
    assert logs[0][0]["loss"] != logs[1][0]["loss"]
    path.write_text(yaml.safe_dump({**plain(config), "stepz": 1}), encoding="utf-8")
    assert main(["train", str(path)]) == 1
    assert "stepz is no setting" in capsys.readouterr().err
    assert main(["train", str(Path(tmp_path, "absent.yaml"))]) == 1
