import errno
import sqlite3
import stat
import threading

import pytest

from sidr_rag.errors import IndexFormatError, SidrError, StorageError
from sidr_rag.index.database import Database
from sidr_rag.index.passages import MemoryTable, Row, SegmentChange, SegmentEntry
from sidr_rag.index.sqlite_errors import errno_of


def row(seq, passage_id, text="text", metadata="{}", title=None):
    return Row(seq, passage_id, title, text, metadata)


@pytest.fixture
def path(tmp_path):
    Database.create(tmp_path / "passages.db", {"settings": "{}"})
    return tmp_path / "passages.db"


@pytest.fixture
def database(path):
    made = Database(path, read_only=False)
    yield made
    made.close()


@pytest.fixture(params=["memory", "sqlite"])
def table(request, database):
    return MemoryTable() if request.param == "memory" else database


def put(table, *rows, **change):
    transaction = table.begin()
    transaction.insert(rows)
    return transaction.commit(SegmentChange(**change), 100)


def test_tables_give_back_what_they_were_given(table):
    rows = [
        row(2, "b", "é\ud800\0", '{"k":"\ud83d"}', "title"),
        row(1, "\ud800", "", "{}", ""),
        row(3, "a" * 5000, "x" * 100_000),
    ]
    assert put(table, *rows) == 1
    assert table.generation() == 1
    assert list(table.scan()) == sorted(rows)
    assert table.fetch([3, 1, 77]) == {3: rows[2], 1: rows[1]}
    assert table.lookup(["b", "nobody", "\ud800"]) == {"b": 2, "\ud800": 1}


def test_a_transaction_sees_itself_and_no_one_else_does(table):
    put(table, row(1, "a"), row(2, "b"))
    transaction = table.begin()
    transaction.delete([1])
    transaction.insert([row(3, "a", "new"), row(4, "c")])
    transaction.delete([4])
    assert transaction.lookup(["a", "b", "c"]) == {"a": 3, "b": 2}
    assert [r.seq for r in table.scan()] == [1, 2]
    transaction.rollback()
    assert [r.seq for r in table.scan()] == [1, 2]
    assert table.generation() == 1
    transaction = table.begin()
    transaction.delete([1])
    transaction.insert([row(3, "a", "new")])
    assert transaction.commit(SegmentChange(), 100) == 2
    assert table.lookup(["a", "b"]) == {"a": 3, "b": 2}
    assert table.fetch([1, 3]) == {3: row(3, "a", "new")}


def test_many_ids_and_seqs_at_once(table):
    put(table, *(row(i, f"id{i}") for i in range(1, 1801)))
    assert len(table.fetch(range(1, 3000))) == 1800
    assert len(table.lookup([f"id{i}" for i in range(3000)])) == 1800


def test_state_holds_segments_tombstones_and_settings(database):
    entries = [SegmentEntry("b" * 32, 2, 1, 2), SegmentEntry("a" * 32, 1, 3, 3)]
    put(database, row(1, "a"), segments=entries, bury=[2, 1])
    state = database.state()
    assert (state.generation, state.next_seq, state.segments, state.tombstones) == (1, 100, entries, [1, 2])
    put(database, segments=entries[1:], settle=[2])
    assert database.state().segments == entries[1:]
    assert database.state().tombstones == [1]


def test_readers_of_other_connections_see_every_commit(path, database):
    with_reader = Database(path, read_only=True)
    put(database, row(1, "a"))
    assert with_reader.generation() == 1
    found = []
    thread = threading.Thread(target=lambda: found.extend(with_reader.scan()))
    thread.start()
    thread.join()
    assert found == [row(1, "a")]
    with pytest.raises(StorageError):
        put(with_reader, row(2, "b"))
    with_reader.close()


def test_a_scan_keeps_its_state_while_others_write(database):
    put(database, *(row(i, str(i)) for i in range(1, 4)))
    scan = database.scan()
    first = next(scan)
    transaction = database.begin()
    transaction.delete([2, 3])
    transaction.insert([row(4, "4")])
    transaction.commit(SegmentChange(), 100)
    assert [first, *scan] == [row(1, "1"), row(2, "2"), row(3, "3")]
    assert [r.seq for r in database.scan()] == [1, 4]


def test_the_files_are_private(path, database):
    put(database, row(1, "a"))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


def test_a_closed_database_says_so(database):
    database.close()
    for call in (database.generation, database.state, database.begin):
        with pytest.raises(SidrError, match="closed"):
            call()


# Files that are no store, or no longer one


def test_another_program_s_database_is_refused_by_name(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as c:
        c.execute("CREATE TABLE t (x)")
    c.close()
    before = path.read_bytes()
    with pytest.raises(IndexFormatError, match=r"other\.db"):
        Database(path, read_only=False)
    assert path.read_bytes() == before


@pytest.mark.parametrize("contents", [b"", b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_no_database_at_all_is_refused_by_name(tmp_path, contents):
    path = tmp_path / "passages.db"
    path.write_bytes(contents)
    with pytest.raises(IndexFormatError, match=r"passages\.db"):
        Database(path, read_only=False)


def filled(path):
    database = Database(path, read_only=False)
    put(database, *(row(i, f"id{i}", f"text {i} " * 40) for i in range(1, 400)))
    database.purge()
    database.close()


def test_a_cut_file_is_never_taken_for_a_whole_one(path):
    filled(path)
    data = path.read_bytes()
    for size in (len(data) // 2, len(data) - 4096, 4096, 100, 1, 0):
        path.write_bytes(data[:size])
        with pytest.raises(IndexFormatError, match=r"passages\.db"):
            list(opened(path).scan())


def opened(path):
    database = Database(path, read_only=True)
    database.state()
    return database


def test_overwritten_pages_give_an_error_of_ours_or_the_right_rows(path):
    filled(path)
    data = path.read_bytes()
    good = list(opened(path).scan())
    faults = 0
    for page in range(len(data) // 4096):
        path.write_bytes(data[: page * 4096] + b"\xa5" * 4096 + data[(page + 1) * 4096 :])
        try:
            assert list(opened(path).scan()) == good
        except IndexFormatError as e:
            fault = str(e)
            faults += 1
            if "passages.db" not in fault:
                pytest.fail(fault)
    assert faults


def edit(path, *statements):
    with sqlite3.connect(path) as c:
        for statement in statements:
            c.execute(statement)
    c.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE segments",
        "DROP TABLE passages",
        "DELETE FROM meta WHERE key = 'generation'",
        "DELETE FROM meta WHERE key = 'next_seq'",
        "UPDATE meta SET value = 'many' WHERE key = 'generation'",
        "UPDATE passages SET text = x'ff80'",
        "UPDATE passages SET text = 5",
        "UPDATE passages SET text = 'a text column, not a blob'",
        "UPDATE passages SET id = x'ff' WHERE seq = 7",
    ],
)
def test_a_database_without_sense_is_refused_by_name(path, statement):
    filled(path)
    edit(path, statement)
    with pytest.raises(IndexFormatError, match=r"passages\.db"):
        list(opened(path).scan())


def test_a_replaced_file_is_noticed_by_every_later_connection(tmp_path, path, database):
    put(database, row(1, "old"))
    other = tmp_path / "new.db"
    Database.create(other, {})
    for name in ("passages.db-wal", "passages.db-shm"):
        (tmp_path / name).unlink()
    other.replace(path)
    assert database.fetch([1]) == {1: row(1, "old")}
    with pytest.raises(IndexFormatError, match="replaced"):
        database.begin()
    faults = []

    def read():
        try:
            database.generation()
        except IndexFormatError as e:
            faults.append(e)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(faults) == 1


def test_an_interrupted_creation_does_not_hinder_the_next(tmp_path):
    for name in ("passages.db.new", "passages.db.new-journal", "passages.db.new-wal", "passages.db.new-shm"):
        (tmp_path / name).write_bytes(b"left over" * 1000)
    Database.create(tmp_path / "passages.db", {})
    assert Database(tmp_path / "passages.db", read_only=True).generation() == 0
    assert [p.name for p in tmp_path.iterdir() if ".new" in p.name] == []


def test_purging_leaves_nothing_of_deleted_rows(path, database):
    put(database, *(row(i, f"id{i}", f"secretword{i} " * 30) for i in range(1, 50)))
    transaction = database.begin()
    transaction.delete(list(range(2, 50)))
    transaction.commit(SegmentChange(), 100)
    database.purge()
    for file in path.parent.iterdir():
        data = file.read_bytes()
        assert b"secretword2 " not in data, file.name
        assert b"secretword49" not in data, file.name
    assert database.fetch([1])[1].text.startswith("secretword1")


def test_purging_beside_a_reader_that_keeps_old_pages_is_an_error(path, database):
    put(database, row(1, "a", "secret"), *(row(n, f"b{n}") for n in range(2, 1000)))
    scan = database.scan()
    next(scan)
    transaction = database.begin()
    transaction.delete([1])
    transaction.commit(SegmentChange(), 1000)
    database_timeouts_are_short(database)
    with pytest.raises(StorageError):
        database.purge()
    scan.close()
    database.purge()


def database_timeouts_are_short(database):
    connect = database._connect

    def quick(*, write):
        connection = connect(write=write)
        connection.execute("PRAGMA busy_timeout = 50")
        return connection

    database._connect = quick


@pytest.mark.parametrize("column", ["id", "title", "text", "metadata"])
def test_a_changed_byte_of_a_stored_passage_is_noticed(path, column):
    database = Database(path, read_only=False)
    put(database, row(1, "amber", "coral jade", '{"k":"v"}', "title"), row(2, "other"))
    database.close()
    connection = sqlite3.connect(path)
    connection.execute(
        f"UPDATE passages SET {column} = CAST(replace({column}, 'a', 'b') AS BLOB) || X'20' WHERE seq = 1"
    )
    connection.commit()
    connection.close()
    database = Database(path, read_only=True)
    with pytest.raises(IndexFormatError, match=r"passages\.db.*checksum"):
        database.fetch([1])
    assert database.fetch([2])[2].id == "other"
    with pytest.raises(IndexFormatError, match=r"passages\.db.*checksum"):
        list(database.scan())
    database.close()


def test_text_moved_from_one_column_to_another_is_noticed(path):
    database = Database(path, read_only=False)
    put(database, row(1, "a", "coral", "{}", "jade"))
    database.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE passages SET title = CAST('' AS BLOB), text = CAST('jadecoral' AS BLOB)")
    connection.commit()
    connection.close()
    database = Database(path, read_only=True)
    with pytest.raises(IndexFormatError, match="checksum"):
        database.fetch([1])
    database.close()


@pytest.mark.parametrize(
    ("code", "number"),
    [(13, errno.ENOSPC), (10 | 4 << 8, errno.EIO), (5, errno.EBUSY), (8 | 1 << 8, errno.EROFS), (77, errno.EIO)],
)
def test_errors_of_the_disk_have_the_systems_numbers(code, number):
    error = sqlite3.OperationalError("of the disk")
    error.sqlite_errorcode = code
    assert errno_of(error) == number
    assert errno_of(OSError(errno.EFBIG, "too big")) == errno.EFBIG


@pytest.mark.parametrize(
    ("text", "number"), [("database or disk is full", errno.ENOSPC), ("disk I/O error", errno.EIO)]
)
def test_numbers_without_sqlites_codes(text, number):
    assert errno_of(sqlite3.OperationalError(text)) == number
