"""The command line, called as a user calls it: arguments in, exit status and text out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidr_rag import SiDR
from sidr_rag.cli import main

DOCUMENTS = {
    "pets/cats.md": "# Cats\n\nA cat sleeps for most of the day.\n\n## Food\n\nCats eat fish and meat.\n",
    "pets/dogs.txt": "Dogs chase balls in the park and bark at strangers.",
    "baking.txt": "Bread is baked from flour, water, salt and yeast.",
}


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A folder of documents below the current directory, with a name relative to it."""
    monkeypatch.chdir(tmp_path)
    for name, text in DOCUMENTS.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Path("docs")


@pytest.fixture
def indexed(docs, capsys):
    assert main(["index", str(docs)]) == 0
    capsys.readouterr()
    return docs


def json_of(capsys):
    return json.loads(capsys.readouterr().out)


def found_files(capsys, *arguments):
    """Names of the files that a search finds, best first."""
    assert main(["search", *arguments, "--json"]) == 0
    return [Path(r["metadata"]["source"]).name for r in json_of(capsys)]


def run_program(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sidr_rag.cli", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=300,
    )


def test_index_makes_the_default_store_and_reports_files_and_rate(docs, capsys):
    (docs / "picture.png").write_bytes(b"\x89PNG")
    (docs / "broken.docx").write_bytes(b"no archive")
    assert main(["index", str(docs)]) == 0
    out = capsys.readouterr().out
    assert "4 passages from 3 files" in out
    assert "passages/s" in out
    assert "skipped 1" in out
    assert "picture.png: unsupported kind" in out
    assert "failed 1" in out
    assert "broken.docx" in out
    with SiDR.open(".sidr", read_only=True) as sidr:
        assert len(sidr) == 4


def test_index_refuses_an_existing_store_unless_told_to_overwrite(indexed, capsys):
    assert main(["index", str(indexed)]) == 1
    assert "holds a store already" in capsys.readouterr().err
    assert main(["index", str(indexed / "baking.txt"), "--overwrite"]) == 0
    with SiDR.open(".sidr", read_only=True) as sidr:
        assert len(sidr) == 1


def test_index_without_a_passage_stores_nothing_and_keeps_what_was_there(indexed, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["index", "empty", "--overwrite"]) == 1
    assert "nothing was stored" in capsys.readouterr().err
    assert main(["index", "empty", "--store", "other"]) == 1
    assert not Path("other").exists()
    with SiDR.open(".sidr", read_only=True) as sidr:
        assert len(sidr) == 4


def test_index_splits_as_told(docs, capsys):
    (docs / "long.txt").write_text(" ".join(f"Sentence number {i} is here." for i in range(60)), encoding="utf-8")
    assert main(["index", str(docs / "long.txt"), "--store", "whole", "--max-tokens", "1000"]) == 0
    assert main(["index", str(docs / "long.txt"), "--store", "parts", "--max-tokens", "32", "--overlap", "8"]) == 0
    capsys.readouterr()
    with SiDR.open("whole", read_only=True) as whole, SiDR.open("parts", read_only=True) as parts:
        assert len(whole) == 1
        assert len(parts) > 10


def test_index_with_the_binary_weighting_keeps_one_level(docs, capsys):
    assert main(["index", str(docs), "--weighting", "binary"]) == 0
    capsys.readouterr()
    assert main(["info", "--json"]) == 0
    assert json_of(capsys)["levels"] == [1]


def test_search_prints_ranked_passages_without_escape_codes(indexed, capsys):
    assert main(["search", "Which food do cats like?", "-k", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1. ")
    assert "Cats eat fish and meat." in out
    assert "passages in" in out
    assert "\x1b" not in out


def test_search_as_json_gives_every_field(indexed, capsys):
    assert main(["search", "How is bread baked?", "-k", "1", "--rerank", "2", "--explain", "--json"]) == 0
    (result,) = json_of(capsys)
    assert result["text"] == DOCUMENTS["baking.txt"]
    assert result["rank"] == 1
    assert result["reranked"] is True
    assert result["title"] == "baking"
    assert result["metadata"]["kind"] == "txt"
    parts = result["explanation"]["parts"]
    assert "bread" in [p["token"] for p in parts]
    assert sum(p["contribution"] for p in parts) == pytest.approx(result["beta_score"], rel=1e-5)


@pytest.mark.parametrize("kind", ["beta", "full", "alpha"])
def test_search_of_each_kind_finds_the_right_file(indexed, capsys, kind):
    assert found_files(capsys, "flour and yeast", "--search", kind)[0] == "baking.txt"


def test_search_filters_on_metadata(indexed, capsys):
    assert set(found_files(capsys, "cats dogs")) == {"cats.md", "dogs.txt"}
    assert found_files(capsys, "cats dogs", "--filter", '{"kind": "txt"}') == ["dogs.txt"]


def test_search_explains_in_words(indexed, capsys):
    assert main(["search", "bread zebra", "-k", "1", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "bread" in out
    assert "in the query" in out
    assert "not in the passage: zebra" in out


def test_search_k_of_zero_finds_nothing_and_a_negative_one_is_an_error(indexed, capsys):
    assert found_files(capsys, "cats", "-k", "0") == []
    assert main(["search", "cats", "-k", "-1"]) == 1
    assert "k=-1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["search"],
        ["bogus"],
        ["search", "cats", "--search", "gamma"],
        ["search", "cats", "--filter", "{"],
        ["search", "cats", "--filter", "[1]"],
        ["search", "cats", "--search", "full", "--explain"],
        ["index", "docs", "--weighting", "other"],
        ["index", "docs", "--max-tokens", "many"],
    ],
)
def test_wrong_usage_ends_with_status_two(indexed, capsys, arguments):
    assert main(arguments) == 2
    assert "Usage: sidr-rag" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["search", "cats", "--store", "nowhere"], "nowhere"),
        (["info", "--store", "docs"], "docs"),
        (["add", "nowhere.txt"], "nowhere.txt"),
        (["index", "nowhere.txt", "--store", "new"], "nowhere.txt"),
        (["index", "docs", "--store", "new", "--max-tokens", "0"], "max_tokens"),
        (["search", "cats", "--filter", '{"kind": {"like": "txt"}}'], "like"),
        (["search", "cats", "--model", "./no-such-model"], "no-such-model"),
        (["search", "cats", "--rerank", "3", "--search", "full"], "rerank=3"),
    ],
)
def test_errors_are_one_line_on_stderr_and_status_one(indexed, capsys, arguments, named):
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("sidr-rag: ")
    assert captured.err.count("\n") == 1
    assert named in captured.err


def test_add_makes_a_new_file_searchable(indexed, capsys):
    (indexed / "fresh.txt").write_text("The quorum for the zeppelin committee is seven.", encoding="utf-8")
    assert found_files(capsys, "zeppelin") == []
    assert main(["add", str(indexed / "fresh.txt")]) == 0
    assert "now holds 5" in capsys.readouterr().out
    assert found_files(capsys, "zeppelin") == ["fresh.txt"]


def test_add_of_a_changed_file_leaves_nothing_of_its_old_passages(indexed, capsys):
    (indexed / "pets/cats.md").write_text("# Cats\n\nLions are large cats.\n", encoding="utf-8")
    assert main(["add", str(indexed)]) == 0
    assert "now holds 3" in capsys.readouterr().out
    with SiDR.open(".sidr", read_only=True) as sidr:
        texts = [p.text for p in sidr.get(sidr.ids())]
    assert not any("fish" in text for text in texts)
    assert any("Lions" in text for text in texts)


def test_add_of_changed_records_drops_those_that_are_gone(docs, capsys):
    records = docs / "records.jsonl"
    records.write_text('{"id": "a", "text": "apples"}\n{"id": "b", "text": "pears"}\n', encoding="utf-8")
    assert main(["index", str(docs)]) == 0
    records.write_text('{"id": "b", "text": "quinces"}\n', encoding="utf-8")
    assert main(["add", str(records)]) == 0
    capsys.readouterr()
    with SiDR.open(".sidr", read_only=True) as sidr:
        assert len(sidr) == 5
        assert "a" not in sidr
        assert [p.text for p in sidr.get(["b"])] == ["quinces"]


def test_add_of_an_emptied_file_removes_it_and_of_a_broken_one_keeps_it(indexed, capsys):
    (indexed / "pets/dogs.txt").write_text("", encoding="utf-8")
    broken = indexed / "pets/cats.md"
    broken.write_bytes(b"\x00\x01\x02\xff\xfe\x00" * 50)
    assert main(["add", str(indexed)]) == 0
    out = capsys.readouterr().out
    with SiDR.open(".sidr", read_only=True) as sidr:
        sources = [Path(p.metadata["source"]).name for p in sidr.get(sidr.ids())]
    assert "dogs.txt" not in sources
    assert "failed 1" in out
    assert sources.count("cats.md") == 2


def test_add_removes_what_is_gone_only_when_told_to_sync(indexed, capsys):
    (indexed / "baking.txt").unlink()
    assert main(["add", str(indexed)]) == 0
    capsys.readouterr()
    assert "baking.txt" in found_files(capsys, "flour and yeast")
    assert main(["add", str(indexed), "--sync"]) == 0
    capsys.readouterr()
    assert "baking.txt" not in found_files(capsys, "flour and yeast")
    assert "cats.md" in found_files(capsys, "cats")


def test_delete_says_how_many_existed(indexed, capsys):
    with SiDR.open(".sidr", read_only=True) as sidr:
        first = sidr.ids()[0]
    assert main(["delete", first, "unknown"]) == 0
    assert capsys.readouterr().out == "deleted 1 passages; 1 ids are not in the store\n"
    assert main(["info", "--json"]) == 0
    assert json_of(capsys)["passages"] == 3


def test_info_names_model_and_counts(indexed, capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "passages" in out
    assert "sidr-mini" in out
    assert main(["info", "--json"]) == 0
    facts = json_of(capsys)
    assert facts["passages"] == 4
    assert facts["path"] == ".sidr"


def test_text_that_a_terminal_would_obey_is_shown_harmlessly(docs, capsys):
    lines = [
        json.dumps({"id": "evil", "text": "zebra \x1b[31mred\x07 \u202e back [bold]tag[/bold]", "title": "t\x1b]0;x"})
    ]
    (docs / "evil.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert main(["index", str(docs)]) == 0
    assert main(["search", "zebra", "-k", "1"]) == 0
    out = capsys.readouterr().out
    assert "[bold]tag[/bold]" in out
    assert not any(c in out for c in "\x1b\x07\u202e")


def test_output_survives_a_pipe_that_knows_only_ascii(docs, tmp_path):
    (docs / "umlaut.txt").write_text("Schöne Grüße aus Köln, 東京 🙂", encoding="utf-8")
    assert run_program("index", "docs", cwd=tmp_path).returncode == 0
    done = run_program("search", "Köln", "-k", "1", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert b"K?ln" in done.stdout
    as_json = run_program("search", "Köln", "-k", "1", "--json", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert json.loads(as_json.stdout)[0]["text"].endswith("東京 🙂")


def test_a_piped_run_writes_no_escape_codes_and_no_progress_bar(docs, tmp_path):
    done = run_program("index", "docs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert done.stderr == b""


def test_a_missing_extra_is_one_line(tmp_path):
    block = (
        "import sys, importlib.abc\n"
        "class Block(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'typer':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from sidr_rag.cli import main\n"
        "sys.exit(main(['info']))\n"
    )
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr == "sidr-rag: the command line needs the package 'typer': pip install 'sidr-rag[cli]'\n"


def test_version(capsys):
    from sidr_rag import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sidr-rag {__version__}\n"
