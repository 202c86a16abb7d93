def test_damaged_derived_files_change_no_answer(fast):
    from benchmarks.reliability.damage import run_derived

    figures = run_derived(fast, edits=20)
    assert figures["derived files damaged"] == 38
    assert figures["derived files damaged, warned"] >= 12


def test_database_edits_are_refused_or_harmless_and_never_crash(fast):
    from benchmarks.reliability.database_damage import run_database

    figures = run_database(fast, edits=150)
    assert figures["refused"] > 10
    assert figures["right"] > 10
