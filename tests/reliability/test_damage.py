def test_damaged_derived_files_change_no_answer(fast):
    from benchmarks.reliability.damage import run_derived

    figures = run_derived(fast, edits=40)
    assert figures["derived files damaged"] == 58
    assert figures["derived files damaged, warned"] >= 20


def test_database_edits_are_refused_or_harmless_and_never_crash(fast):
    from benchmarks.reliability.database_damage import run_database

    figures = run_database(fast, edits=150)
    assert figures["refused"] > 10
    assert figures["right"] > 10
