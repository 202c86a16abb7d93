import asyncio
import json
import threading
import time

import pytest
from stub_encoders import StubEncoder

from sidr_rag.costs import STAGES, Costs, Ledger, clocked, note


def test_figures_add_up_and_subtract():
    a = Costs(searches=1, queries=2, passages=3, cache_hits=4, pairs=5, query_tokens=6, passage_tokens=7)
    a.seconds["embed"] = 0.5
    b = a + a
    assert (b.searches, b.texts, b.tokens, b.cache_hits, b.pairs) == (2, 10, 26, 8, 10)
    assert b.seconds["embed"] == 1.0
    assert (b - a).to_dict() == a.to_dict()
    assert a.seconds["embed"] == 0.5, "the sum is another object"
    assert a.share(50) == 0.1
    assert a.share(0) == 0.0
    assert json.loads(json.dumps(a.to_dict()))["texts"] == 5


def test_a_rich_table():
    rich = pytest.importorskip("rich.console")
    console = rich.Console(record=True, width=80)
    console.print(Costs(queries=1234))
    text = console.export_text()
    assert "1,234" in text
    assert "first stage" in text


def test_calls_are_booked_in_the_totals_and_in_every_open_account():
    ledger = Ledger()
    with ledger.measured() as outer:
        with ledger.booking():
            note(queries=1)
        with ledger.measured() as inner, ledger.booking():
            note(queries=2, passages=5)
    with ledger.booking():
        note(queries=4)
    assert (outer.queries, inner.queries, inner.passages, ledger.total().queries) == (3, 2, 5, 7)
    note(queries=100)
    assert ledger.total().queries == 7, "outside a call nothing is booked"


def test_a_failed_call_is_booked_as_well():
    ledger = Ledger()

    def fail():
        with ledger.booking():
            note(passages=3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ledger.total().passages == 3


def test_inner_stages_are_taken_off_the_outer_one(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("sidr_rag.costs.time.perf_counter", lambda: now[0])
    ledger = Ledger()
    with ledger.booking() as costs, clocked("second_stage"):
        now[0] += 1
        with clocked("embed"):
            now[0] += 10
        now[0] += 100
    assert costs.seconds["embed"] == 10
    assert costs.seconds["second_stage"] == 101
    with clocked("embed"):
        pass  # without a call to book, nothing happens
    assert set(costs.seconds) == set(STAGES)


def test_threads_do_not_mix_their_accounts_and_lose_nothing():
    ledger = Ledger()
    found = []

    def work(n):
        with ledger.measured() as account:
            for _ in range(200):
                with ledger.booking():
                    note(queries=n)
        found.append((n, account.queries))

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [(1, 200), (2, 400), (3, 600)]
    assert ledger.total().queries == 1200


def test_a_search_in_a_thread_of_an_event_loop_is_booked_for_its_task():
    ledger = Ledger()

    def call():
        with ledger.booking():
            note(queries=1)

    async def one(n):
        with ledger.measured() as account:
            for _ in range(n):
                await asyncio.to_thread(call)
        return account.queries

    async def all_():
        return await asyncio.gather(one(2), one(3))

    assert asyncio.run(all_()) == [2, 3]


def test_every_stage_has_its_seconds(make, tokenizer):
    sidr = make(encoder=StubEncoder(tokenizer, spread=2))
    sidr.add(["copper harbor", "copper kettle"])
    start = time.perf_counter()
    with sidr.measured() as costs:
        sidr.search("copper", rerank=2)
    passed = time.perf_counter() - start
    assert all(costs.seconds[stage] > 0 for stage in STAGES)
    assert sum(costs.seconds.values()) <= passed
    assert sidr.costs().to_dict() == costs.to_dict()
    sidr.search([], rerank=2)
    assert sidr.costs().searches == 1


def test_tokens_of_the_default_model():
    from sidr_rag import SiDR

    with SiDR.from_texts(["copper kettle on the stove", "winter"], num_threads=1) as sidr:
        with sidr.measured() as costs:
            sidr.search("copper kettle", rerank=5)
        assert (costs.query_tokens, costs.passage_tokens, costs.queries, costs.passages) == (2, 5, 1, 1)
