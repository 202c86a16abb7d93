import threading
import time

import pytest
from stub_encoders import StubEncoder

from sidr_rag.errors import InvalidInputError


class Slow(StubEncoder):
    """Embeds passages only as fast as the test lets it."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.gate = threading.Semaphore(0)
        self.began = threading.Semaphore(0)

    def encode_passages(self, texts, *, representation="theta", max_active_dims=None):
        if representation != "bot":
            self.began.release()
            assert self.gate.acquire(timeout=60)
        return super().encode_passages(texts, representation=representation, max_active_dims=max_active_dims)


def texts(n):
    return [f"copper number {chr(97 + i % 26)} {chr(97 + i // 26)} river" for i in range(n)]


def ids(results):
    return [r.passage.id for r in results]


@pytest.fixture
def slow(make, tokenizer):
    encoder = Slow(tokenizer, spread=2)
    sidr = make(encoder=encoder)
    sidr.add(texts(200), ids=[str(i) for i in range(200)])
    yield sidr, encoder
    for _ in range(100):
        encoder.gate.release()


def test_everything_is_embedded_while_searches_go_on(slow):
    sidr, encoder = slow
    told = []
    job = sidr.embed(background=True, progress=lambda done, total: told.append((done, total)))
    assert encoder.began.acquire(timeout=60)
    assert job.state == "running"
    assert not job.wait(0.01)
    assert len(sidr.search("copper", k=3)) == 3, "a search does not wait"
    for _ in range(20):
        encoder.gate.release()
    assert job.wait(60)
    assert job.state == "finished"
    assert (job.done, job.total) == (200, 200)
    assert told[0] == (0, 200)
    assert told[-1] == (200, 200)
    assert [d for d, _ in told] == sorted(d for d, _ in told)
    n = len(encoder.encoded)
    assert n == len(set(encoder.encoded)) == 200
    assert sidr.search("copper", search="auto") == sidr.search("copper", search="full")
    assert len(encoder.encoded) == n
    assert "200 of 200" in repr(job)


def test_pausing_and_resuming(slow):
    sidr, encoder = slow
    job = sidr.embed(background=True)
    assert encoder.began.acquire(timeout=60)
    job.pause()
    assert job.state == "paused"
    for _ in range(20):
        encoder.gate.release()
    deadline = time.monotonic() + 60
    while job.done == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    done = job.done
    assert 0 < done < 200, "the batch at work was finished, and no other begun"
    assert not job.wait(0.1)
    assert job.done == done
    job.resume()
    assert job.wait(60)
    assert job.done == 200


def test_closing_keeps_what_is_done_and_a_new_job_goes_on(slow):
    sidr, encoder = slow
    job = sidr.embed(True)
    assert encoder.began.acquire(timeout=60)
    encoder.gate.release()
    assert encoder.began.acquire(timeout=60)
    encoder.gate.release()
    job.pause()
    job.close()
    assert job.state == "closed"
    done = len(encoder.encoded)
    assert 0 < done < 200
    for _ in range(20):
        encoder.gate.release()
    with sidr.embed(background=True) as again:
        assert again.wait(60)
    assert again.state == "finished"
    assert len(encoder.encoded) == len(set(encoder.encoded)) == 200


def test_one_job_at_a_time(slow):
    sidr, encoder = slow
    job = sidr.embed(background=True)
    with pytest.raises(InvalidInputError, match="going on"):
        sidr.embed(background=True)
    job.pause()
    with pytest.raises(InvalidInputError, match="going on"):
        sidr.embed(background=True)
    for _ in range(20):
        encoder.gate.release()
    job.close()
    sidr.embed(background=True).wait(60)


def test_passages_added_meanwhile_are_embedded_too(slow):
    sidr, encoder = slow
    job = sidr.embed(background=True)
    assert encoder.began.acquire(timeout=60)
    sidr.add(["copper late comer"], ids=["late"])
    sidr.delete(["7"])
    for _ in range(30):
        encoder.gate.release()
    assert job.wait(60)
    assert job.total == 200
    assert "copper late comer" in encoder.encoded


def test_an_error_of_the_encoder_reaches_who_waits(make, tokenizer):
    class Failing(StubEncoder):
        def encode_passages(self, texts, *, representation="theta", max_active_dims=None):
            raise ZeroDivisionError("the encoder's own")

    sidr = make(encoder=Failing(tokenizer))
    sidr.add(["copper"])
    job = sidr.embed(background=True)
    with pytest.raises(ZeroDivisionError, match="own"):
        job.wait(60)
    assert job.state == "failed"
    assert len(sidr.search("copper")) == 1


def test_closing_the_store_ends_the_work(slow):
    sidr, encoder = slow
    job = sidr.embed(background=True)
    assert encoder.began.acquire(timeout=60)
    encoder.gate.release()
    for _ in range(3):
        encoder.gate.release()
    job.pause()
    sidr.close()
    assert job.state == "closed"


def test_it_is_taken_up_where_it_stopped_after_a_restart(make, tokenizer, tmp_path):
    encoder = Slow(tokenizer, spread=2)
    sidr = make(tmp_path / "s", encoder=encoder)
    sidr.add(texts(200))
    job = sidr.embed(background=True)
    for _ in range(2):
        encoder.gate.release()
        assert encoder.began.acquire(timeout=60)
    encoder.gate.release()
    job.pause()
    sidr.close()
    done = len(encoder.encoded)
    assert 0 < done < 200
    again = StubEncoder(tokenizer, spread=2)
    told = []
    sidr = make(tmp_path / "s", encoder=again)
    assert sidr.embed(progress=lambda d, n: told.append(d)) == 200
    assert told[0] == done
    assert len(again.encoded) == 200 - done
    assert not set(again.encoded) & set(encoder.encoded)


def test_progress_in_the_foreground(make, tokenizer):
    sidr = make(encoder=StubEncoder(tokenizer, spread=2))
    sidr.add(texts(70))
    told = []
    assert sidr.embed(progress=lambda d, n: told.append((d, n))) == 70
    assert told == [(0, 70), (32, 70), (64, 70), (70, 70), (70, 70)]
    assert sidr.costs().passages == 70
