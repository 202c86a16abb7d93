from pathlib import Path

import pytest

from sidr_rag.errors import InvalidInputError, InvalidTypeError, ModelNotFoundError
from sidr_rag.train import load_train_config
from sidr_rag.train.config import TrainConfig
from sidr_rag.train.settings import build, plain

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

MINIMAL = {
    "name": "m",
    "base": "base",
    "output": "out",
    "data": {"sources": [{"path": "pairs.jsonl"}]},
    "steps": {"total": 5},
    "terms": {"weighted": {}},
}


def changed(**changes):
    return build(TrainConfig, {**MINIMAL, **changes})


def test_defaults_fill_what_is_left_out():
    config = changed()
    assert config.steps.beta_batch == 64
    assert config.terms["weighted"].temperature == "auto"
    assert config.corpus.start.levels == (1, 2, 4)
    assert config.weight("full") == 0


@pytest.mark.parametrize(
    ("change", "error", "names"),
    [
        ({"stpes": {}}, InvalidInputError, "stpes"),
        ({"steps": {"total": 5, "beta_bacth": 3}}, InvalidInputError, "steps.beta_bacth"),
        ({"steps": {}}, InvalidInputError, "steps.total"),
        ({"steps": {"total": "5"}}, InvalidTypeError, "steps.total"),
        ({"steps": {"total": True}}, InvalidTypeError, "steps.total"),
        ({"steps": {"total": 0}}, InvalidInputError, "steps.total"),
        ({"terms": {"wieghted": {}}}, InvalidInputError, "terms.wieghted"),
        ({"terms": {"full": {"weight": 0}}}, InvalidInputError, "terms"),
        ({"terms": {"full": {}}}, InvalidInputError, "beta_per_full"),
        ({"terms": {"weighted": {"directions": "up"}}}, InvalidInputError, "terms.weighted.directions"),
        ({"data": {"sources": []}}, InvalidInputError, "data.sources"),
        ({"data": {"sources": [{"path": "p", "format": "csv"}]}}, InvalidInputError, r"sources\[0\].format"),
        ({"optimizer": {"learning_rate": "5e-5"}}, InvalidTypeError, "1.0e-5"),
        ({"optimizer": {"average": 1.5}}, InvalidInputError, "optimizer.average"),
        ({"corpus": {"start": {"levels": [1, 2], "gains": [1.0]}}}, InvalidInputError, "gains"),
        ({"terms": {"full": {"active_dims": 3}, "query_bot": {}}}, InvalidInputError, "terms.full.active_dims is 3"),
        ({"terms": {"query_bot": {"active_dims": 0}}}, InvalidInputError, "terms.query_bot.active_dims is 0"),
        (
            {"stages": [{"after": 3, "terms": {"query_bot": {"active_dims": 0}}}]},
            InvalidInputError,
            "terms.query_bot.active_dims is 0",
        ),
        ({"stages": [{"after": 0}]}, InvalidInputError, r"stages\[0\].after is 0"),
        ({"stages": [{"after": 3}, {"after": 3}]}, InvalidInputError, r"stages\[1\].after is 3"),
        ({"stages": [{"after": 3, "active_dims": 0}]}, InvalidInputError, r"stages\[0\].active_dims"),
        ({"stages": [{"after": 3, "terms": {"ful": {}}}]}, InvalidInputError, "terms.ful is no term"),
        ({"stages": [{"after": 3, "corpus": {}}]}, InvalidInputError, "corpus.learned"),
        ({"corpus": {"learned": False}, "stages": [{"after": 3, "corpus": {}}]}, InvalidInputError, "corpus.levels"),
    ],
)
def test_faults_name_the_setting(change, error, names):
    with pytest.raises(error, match=names):
        changed(**change)


def test_paths_are_relative_to_the_file(tmp_path):
    import yaml

    (tmp_path / "run.yaml").write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    config = load_train_config(tmp_path / "run.yaml")
    assert config.base == tmp_path / "base"
    assert config.data.sources[0].path == tmp_path / "pairs.jsonl"


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"nothing\.yaml"):
        load_train_config(tmp_path / "nothing.yaml")
    (tmp_path / "bad.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="YAML"):
        load_train_config(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- a", encoding="utf-8")
    with pytest.raises(InvalidTypeError, match="mapping"):
        load_train_config(tmp_path / "list.yaml")


def test_plain_values_build_the_same_again():
    config = changed(distillation={"cache": "c", "cross": {"model": "m"}, "terms": {"full": 0.5}})
    assert build(TrainConfig, plain(config)) == config


def test_a_stage_holds_from_its_step_on():
    config = changed(
        corpus={"learned": False},
        stages=[
            {"after": 2, "active_dims": 9, "terms": {"query_bot": {"weight": 0.1}}},
            {"after": 4, "corpus": {"levels": [1, 2, 4], "gains": [1, 0.5, 0.5], "theta_blend": 0.5}},
        ],
    )
    assert config.at(0) == config.at(1) == config
    second, third = config.at(2), config.at(4)
    assert config.at(3) == second
    assert (second.steps.active_dims, second.weight("query_bot"), second.weight("weighted")) == (9, 0.1, 1.0)
    assert second.corpus == config.corpus
    assert (third.steps.active_dims, third.corpus.start.theta_blend) == (9, 0.5)


def test_the_fingerprint_is_of_what_decides_the_values():
    config = changed()
    assert changed(show_every=1, threads=2).fingerprint() == config.fingerprint()
    assert changed(seed=2).fingerprint() != config.fingerprint()
    assert changed(retrieval={"m": 3}).fingerprint() != config.fingerprint()


def test_the_default_recipe_reads_and_leaves_out_what_must_not_ship():
    config = load_train_config(CONFIGS / "default.yaml")
    names = {source.path.name.split(".")[0] for source in config.data.sources}
    held_out = {dev.path.name.split(".")[0] for dev in config.dev.sets}
    assert not names & held_out
    free_books = {"biology", "introduction_anthropology", "introduction_business", "principles_economics_bundle"}
    books = {name.removeprefix("openstax_") for name in names if name.startswith("openstax_")}
    assert books <= free_books
    assert not names & {"oyez", "multirc_dev", "policyqa", "asreview"}
    assert all("eval" not in source.path.parts for source in config.data.sources)
    assert all(dev.split != "test" for dev in config.dev.sets)
