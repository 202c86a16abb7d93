from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from sidr_rag import SiDR

T = TypeVar("T")

KINDS = ("theta", "bot")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt to reach the network fails."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a test tried to reach the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def slow_encoder(monkeypatch: pytest.MonkeyPatch) -> Callable[[SiDR, Sequence[str], float], None]:
    """Give an engine an encoder stub that knows some queries, and takes that many seconds for each of them."""

    def replace(engine: SiDR, queries: Sequence[str], seconds: float) -> None:
        for name in ("encode_queries", "encode_binary_queries"):
            encode = getattr(engine.encoder, name)
            known = {(query, kind): encode([query], representation=kind) for query in queries for kind in KINDS}

            def stub(
                texts: Sequence[str],
                *,
                representation: str = "theta",
                max_active_dims: None = None,
                known: dict[tuple[str, str], Any] = known,
            ) -> Any:
                if representation != "bot":
                    time.sleep(seconds)
                (query,) = texts
                return known[query, representation]

            monkeypatch.setattr(engine.encoder, name, stub)

    return replace


@pytest.fixture
def latest_tick() -> Callable[[Callable[[], Awaitable[T]]], Awaitable[tuple[T, float]]]:
    """Run something beside a task that wants to wake every 10 ms; gives its result and the worst delay in seconds."""

    async def beside(work: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        loop = asyncio.get_running_loop()
        worst = 0.0

        async def tick() -> None:
            nonlocal worst
            while True:
                before = loop.time()
                await asyncio.sleep(0.01)
                worst = max(worst, loop.time() - before - 0.01)

        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0.02)
        result = await work()
        await asyncio.sleep(0.02)
        ticking.cancel()
        return result, worst

    return beside


@pytest.fixture
def never_blocked(latest_tick: Callable[..., Any]) -> Callable[..., Awaitable[list[Any]]]:
    """Run something until it has not kept the loop for a tenth of a second; gives the result of every run.

    Work of 0.3 s in the loop keeps it every time; a busy machine does not.
    """

    async def run(work: Callable[[], Awaitable[T]]) -> list[T]:
        results: list[T] = []
        delays: list[float] = []
        while not delays or (min(delays) >= 0.1 and len(delays) < 6):
            result, delay = await latest_tick(work)
            results.append(result)
            delays.append(delay)
        assert min(delays) < 0.1, f"the loop was kept for {delays} seconds"
        return results

    return run
