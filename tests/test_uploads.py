"""Files into a store, changed, and gone: every upload is one commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidr_rag import FileReadError, InvalidInputError, ReadOnlyError, SiDR
from sidr_rag.files import Limits
from sidr_rag.uploads import add_files, from_folder, sync_folder


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "files"
    write(path / "birds.txt", "Falcons hunt by day.")
    write(path / "metals" / "copper.md", "# Copper\n\nCopper conducts electricity.\n")
    return path


@pytest.fixture(params=["memory", "folder"])
def store(request, make, tmp_path):
    return make(tmp_path / "store" if request.param == "folder" else None)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def texts_of(sidr):
    return sorted(passage.text for passage in sidr.get(sidr.ids()))


def generation(sidr):
    return sidr._store.current().generation


def test_files_become_passages_with_source_and_start(store, folder):
    report = add_files(store, folder)
    assert texts_of(store) == ["Copper conducts electricity.", "Falcons hunt by day."]
    assert report.written == store.ids()
    assert [n for _, n in report.loaded] == [1, 1]
    assert (report.unchanged, report.removed) == (0, [])
    (copper,) = store.search("electricity", k=1)
    assert copper.passage.metadata["source"] == str(folder / "metals" / "copper.md")
    assert copper.passage.metadata["start"] == 0


def test_a_changed_file_replaces_its_passages_in_one_commit(store, folder):
    long = " ".join(f"Sentence number {i} about rivers." for i in range(60))
    write(folder / "birds.txt", long)
    add_files(store, folder, max_tokens=40)
    assert len(store) > 5
    before = generation(store)
    write(folder / "birds.txt", "Owls hunt by night.")
    report = add_files(store, folder / "birds.txt", max_tokens=40)
    assert generation(store) == before + 1
    assert texts_of(store) == ["Copper conducts electricity.", "Owls hunt by night."]
    assert report.written == [f"{folder}/birds.txt#0"]
    assert len(report.removed) > 3
    assert store.search("rivers", first_stage="lexical") == []


def test_what_did_not_change_is_not_written_again(store, folder):
    add_files(store, folder)
    before, seqs = generation(store), store.ids()
    report = add_files(store, folder)
    assert (report.written, report.unchanged, report.removed) == ([], 2, [])
    assert generation(store) == before
    write(folder / "birds.txt", "Owls hunt by night.")
    assert add_files(store, folder).unchanged == 1
    assert store.ids() == [seqs[1], seqs[0]]


def test_other_split_of_the_same_file(store, folder):
    text = " ".join(f"Sentence number {i} about rivers." for i in range(60))
    write(folder / "long.txt", text)
    add_files(store, folder / "long.txt", max_tokens=400)
    add_files(store, folder / "long.txt", max_tokens=32, overlap=8)
    passages = store.get(store.ids())
    assert len(passages) > 10
    covered = set()
    for passage in passages:
        start = passage.metadata["start"]
        assert text[start : start + len(passage.text)] == passage.text
        covered.update(range(start, start + len(passage.text)))
    assert all(text[i].isspace() for i in set(range(len(text))) - covered)


def test_equal_names_in_two_folders_stay_apart(store, tmp_path):
    for name, text in (("north", "Falcons hunt by day."), ("south", "Copper conducts electricity.")):
        write(tmp_path / name / "docs" / "readme.txt", text)
    add_files(store, [tmp_path / "north" / "docs", tmp_path / "south" / "docs"])
    assert len(store) == 2
    sync_folder(store, tmp_path / "north" / "docs")
    assert len(store) == 2
    write(tmp_path / "south" / "docs" / "readme.txt", "Rivers run to the sea.")
    add_files(store, tmp_path / "south" / "docs")
    assert texts_of(store) == ["Falcons hunt by day.", "Rivers run to the sea."]


def test_sync_removes_what_came_from_files_that_are_gone(store, folder):
    add_files(store, folder)
    before = generation(store)
    (folder / "birds.txt").unlink()
    write(folder / "new.txt", "Rivers run to the sea.")
    report = sync_folder(store, folder)
    assert report.removed == [f"{folder}/birds.txt#0"]
    assert report.written == [f"{folder}/new.txt#0"]
    assert report.unchanged == 1
    assert generation(store) == before + 1
    assert texts_of(store) == ["Copper conducts electricity.", "Rivers run to the sea."]


def test_adding_does_not_remove_what_is_gone(store, folder):
    add_files(store, folder)
    (folder / "birds.txt").unlink()
    assert add_files(store, folder).removed == []
    assert len(store) == 2


def test_sync_leaves_alone_what_lies_elsewhere_or_was_added_by_hand(store, folder, tmp_path):
    beside = write(tmp_path / "files2" / "birds.txt", "Owls hunt by night.")
    gone = f"{folder}/gone.txt"
    add_files(store, [folder, beside])
    store.add(["A note about that file."], ids=["note"], metadatas=[{"source": gone}])
    beside.unlink()
    assert sync_folder(store, folder).removed == []
    assert len(store) == 4
    write(folder / "gone.txt", "It came.")
    add_files(store, folder)
    assert "note" in store


def test_sync_of_a_moved_file_and_of_a_folder_in_its_place(store, folder):
    add_files(store, folder)
    (folder / "birds.txt").rename(folder / "metals" / "birds.txt")
    (folder / "birds.txt").mkdir()
    report = sync_folder(store, folder)
    assert report.written == [f"{folder}/metals/birds.txt#0"]
    assert report.removed == [f"{folder}/birds.txt#0"]


def test_sync_of_relative_paths_and_of_several_folders(store, folder, monkeypatch, tmp_path):
    write(tmp_path / "more" / "rivers.txt", "Rivers run to the sea.")
    monkeypatch.chdir(tmp_path)
    sync_folder(store, ["files", "more"])
    assert len(store) == 3
    (tmp_path / "more" / "rivers.txt").unlink()
    (folder / "birds.txt").unlink()
    sync_folder(store, iter(["files", "more"]))
    assert texts_of(store) == ["Copper conducts electricity."]


def test_a_folder_that_is_gone_is_an_error_and_removes_nothing(store, folder, tmp_path):
    add_files(store, folder)
    folder.rename(tmp_path / "away")
    with pytest.raises(FileReadError, match="no such file or folder"):
        sync_folder(store, folder)
    assert len(store) == 2


def test_a_file_that_cannot_be_read_keeps_its_passages_and_an_emptied_one_does_not(store, folder):
    records = write(folder / "records.jsonl", '{"id": "r1", "text": "Rivers run."}\n')
    add_files(store, folder)
    records.write_text("{no json\n", encoding="utf-8")
    write(folder / "birds.txt", "  \n")
    report = sync_folder(store, folder)
    assert report.removed == [f"{folder}/birds.txt#0"]
    assert [Path(path).name for path, _ in report.failed] == ["records.jsonl"]
    assert texts_of(store) == ["Copper conducts electricity.", "Rivers run."]


def test_a_file_that_is_refused_now_keeps_its_passages(store, folder):
    add_files(store, folder)
    report = sync_folder(store, folder, limits=Limits(max_file_bytes=25))
    assert {Path(path).name for path, _ in report.skipped} == {"copper.md"}
    assert report.removed == []


def test_a_folder_that_may_not_be_searched_is_no_proof_that_its_files_are_gone(store, folder, monkeypatch):
    add_files(store, folder)
    (folder / "birds.txt").unlink()
    lstat = Path.lstat

    def refused(path):
        if path.name == "birds.txt":
            raise PermissionError(13, "Permission denied")
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", refused)
    assert sync_folder(store, folder).removed == []


def test_records_keep_their_ids_and_follow_their_file(store, folder):
    records = write(
        folder / "records.jsonl", '{"id": "r1", "text": "Rivers run."}\n{"id": "r2", "text": "Seas wait."}\n'
    )
    add_files(store, records)
    write(records, '{"id": "r2", "text": "Seas wait."}\n{"id": "r3", "text": "Lakes rest."}\n')
    report = add_files(store, records)
    assert (report.written, report.unchanged, report.removed) == (["r3"], 1, ["r1"])
    assert sorted(store.ids()) == ["r2", "r3"]


def test_of_an_id_given_twice_the_last_wins_whatever_was_stored(store, folder):
    first, second = '{"id": "r", "text": "Rivers run."}\n', '{"id": "r", "text": "Seas wait."}\n'
    records = write(folder / "records.jsonl", first)
    add_files(store, records)
    for order, text in (
        (second + first, "Rivers run."),
        (first + second, "Seas wait."),
        (second + first, "Rivers run."),
    ):
        write(records, order)
        report = add_files(store, records)
        assert report.removed == []
        assert texts_of(store) == [text]


def test_a_failing_upload_changes_nothing(store, folder):
    add_files(store, folder)
    before, texts = generation(store), texts_of(store)
    write(folder / "birds.txt", "Owls hunt by night.")

    def stop(passages):
        yield next(passages)
        raise RuntimeError("the user went away")

    with pytest.raises(RuntimeError, match="went away"):
        add_files(store, folder, watch=stop)
    with pytest.raises(InvalidInputError, match="max_tokens=0"):
        add_files(store, folder, max_tokens=0)
    assert (generation(store), texts_of(store)) == (before, texts)
    assert len(add_files(store, folder).written) == 1


def test_progress_is_told(store, folder):
    files: dict[str, int] = {}
    seen = []

    def watch(passages):
        for passage in passages:
            seen.append(passage.id)
            yield passage

    report = add_files(store, folder, on_file=lambda path, n: files.__setitem__(Path(path).name, n), watch=watch)
    assert files == {"birds.txt": 1, "copper.md": 1}
    assert seen == report.written


def test_what_was_uploaded_is_there_after_reopening(folder, tmp_path):
    with SiDR.open(tmp_path / "s", create=True) as sidr:
        add_files(sidr, folder)
        write(folder / "birds.txt", "Owls hunt by night.")
        sync_folder(sidr, folder)
    with SiDR.open(tmp_path / "s", read_only=True) as sidr:
        assert texts_of(sidr) == ["Copper conducts electricity.", "Owls hunt by night."]
        with pytest.raises(ReadOnlyError):
            add_files(sidr, folder)


def test_results_are_those_of_a_fresh_store(store, folder, make):
    add_files(store, folder)
    write(folder / "birds.txt", "Copper falcons conduct electricity by day.")
    write(folder / "sea.txt", "Rivers run to the sea, and copper conducts.")
    (folder / "metals" / "copper.md").unlink()
    sync_folder(store, folder)
    fresh = make()
    fresh.add_passages(store.get(store.ids()))
    for query in ("copper", "Which metal conducts?", "falcons"):
        for options in ({}, {"rerank": 3}):
            found = [(r.passage.id, r.score) for r in store.search(query, **options)]
            assert found == [(r.passage.id, r.score) for r in fresh.search(query, **options)]


def test_a_new_store_of_a_folder(folder, tmp_path):
    sidr, report = from_folder(folder, path=tmp_path / "s", max_tokens=50, weighting="binary")
    assert report.n_passages == len(sidr) == 2
    assert sidr.info()["levels"] == [1]
    assert sync_folder(sidr, folder, max_tokens=50).unchanged == 2
    sidr.close()
    with pytest.raises(FileReadError):
        from_folder(tmp_path / "nowhere", path=tmp_path / "other")
    assert not (tmp_path / "other").exists()
