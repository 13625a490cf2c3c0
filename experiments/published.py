"""The published design of the DPA paper as Ray actors: one record at a time, every step an awaited remote call.

Written from the paper's sections 2 to 4. A mapper fetches an item from the coordinator, asks the load balancer for the
owner of its key, and puts the record into that reducer's queue actor; a reducer polls its queue, asks the load balancer
again, and counts or forwards; each call is awaited before the next. Unlike the paper's own code it finds tokens by
binary search, and it ends when as many records are processed as were emitted, so that none is lost.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import Any

import ray

from dpa.routing.ring import TokenRing

TAU, MAX_ROUNDS, REPORT_EVERY, TOKENS = 0.2, 1, 20, 64
"""The constants of the paper's runs with halving: sensitivity, rounds a reducer, items a report, tokens a node."""

_POLL_SECONDS = 0.001
"""How long a reducer waits before it looks at an empty queue again: without it, it would take the others' CPU."""

_END_SECONDS = 0.05
"""How often the end is looked for."""


class Coordinator:
    """Hands out the items, one to each mapper that asks."""

    def __init__(self, items: list[str]) -> None:
        self._items = deque(items)

    def next_item(self) -> str | None:
        """The next item, or None when all are handed out."""
        return self._items.popleft() if self._items else None


class LoadBalancer:
    """Owns the ring; halves the tokens of a reducer whose queue is too long."""

    def __init__(self, reducers: int) -> None:
        self._ring = TokenRing(reducers, TOKENS)
        self._lengths = [0] * reducers
        self._rounds = [0] * reducers

    def key_lookup(self, key: str) -> int:
        """The reducer that owns a key."""
        return self._ring.key_lookup(key)

    def report(self, reducer: int, length: int) -> None:
        """Note a queue's length and redistribute if equation 1 holds."""
        self._lengths[reducer] = length
        second = max(other for index, other in enumerate(self._lengths) if index != reducer)
        if self._rounds[reducer] < MAX_ROUNDS and length > second * (1 + TAU):
            self._rounds[reducer] += 1
            self._ring.set_tokens(reducer, max(self._ring.tokens_of(reducer) // 2, 1))


class Queue:
    """One reducer's queue, an actor of its own."""

    def __init__(self) -> None:
        self._records: deque[tuple[str, int]] = deque()

    def put(self, record: tuple[str, int]) -> None:
        """Append a record."""
        self._records.append(record)

    def get(self) -> tuple[str, int] | None:
        """The record at the head, or None."""
        return self._records.popleft() if self._records else None

    def size(self) -> int:
        """The queue's length."""
        return len(self._records)


class Mapper:
    """Fetches items, maps each to a record and puts it where it belongs."""

    def __init__(self, coordinator: Any, balancer: Any, queues: list[Any]) -> None:
        self._coordinator, self._balancer, self._queues = coordinator, balancer, queues

    def run(self) -> int:
        """Map until there is nothing left; returns the number of records emitted."""
        emitted = 0
        while (word := ray.get(self._coordinator.next_item.remote())) is not None:
            owner = ray.get(self._balancer.key_lookup.remote(word))
            ray.get(self._queues[owner].put.remote((word, 1)))
            emitted += 1
        return emitted


class Reducer:
    """Counts what it owns and forwards the rest, until it is stopped; no work is simulated."""

    def __init__(self, index: int, balancer: Any, queues: list[Any]) -> None:
        self._index, self._balancer, self._queues = index, balancer, queues
        self._counts: Counter[str] = Counter()
        self._dequeued = self._forwarded = 0
        self._stop = threading.Event()

    def run(self) -> tuple[Counter[str], int]:
        """Poll the queue. Returns the counts and the number of records forwarded."""
        own = self._queues[self._index]
        while not self._stop.is_set():
            record = ray.get(own.get.remote())
            if record is None:
                self._stop.wait(_POLL_SECONDS)
                continue
            self._dequeued += 1
            if self._dequeued % REPORT_EVERY == 0:
                ray.get(self._balancer.report.remote(self._index, ray.get(own.size.remote())))
            word, number = record
            owner = ray.get(self._balancer.key_lookup.remote(word))
            if owner == self._index:
                self._counts[word] += number
            else:
                self._forwarded += 1
                ray.get(self._queues[owner].put.remote(record))
        return self._counts, self._forwarded

    def processed(self) -> int:
        """Records counted so far."""
        return self._counts.total()

    def stop(self) -> None:
        """Have `run` return."""
        self._stop.set()


def count(items: list[str], tasks: int) -> tuple[float, int]:
    """Count the items with `tasks` new mappers and as many new reducers on the running Ray.

    Returns the seconds, without those of starting the actors, and the number of records forwarded.

    Raises:
        AssertionError: a record was lost or counted twice.
    """
    coordinator = _actor(Coordinator, items)
    balancer = _actor(LoadBalancer, tasks)
    queues = [_actor(Queue) for _ in range(tasks)]
    mappers = [_actor(Mapper, coordinator, balancer, queues) for _ in range(tasks)]
    # A reducer runs for ever, so it needs a second thread for other calls.
    reducers = [_actor(Reducer, index, balancer, queues, threads=2) for index in range(tasks)]
    actors = [coordinator, balancer, *queues, *mappers, *reducers]
    try:
        ray.get([actor.__ray_ready__.remote() for actor in actors])
        began = time.perf_counter()
        reducing = [reducer.run.remote() for reducer in reducers]
        emitted = sum(ray.get([mapper.run.remote() for mapper in mappers]))
        while sum(ray.get([reducer.processed.remote() for reducer in reducers])) < emitted:
            time.sleep(_END_SECONDS)
        seconds = time.perf_counter() - began
        ray.get([reducer.stop.remote() for reducer in reducers])
        results = ray.get(reducing)
    finally:
        for actor in actors:
            ray.kill(actor)
    counts = sum((counted for counted, _ in results), Counter())
    assert counts == Counter(items), f"{counts.total()} records counted of {len(items)}, or other ones"
    return seconds, sum(moved for _, moved in results)


def _actor(kind: type, *arguments: Any, threads: int = 1) -> Any:
    return ray.remote(num_cpus=0, max_concurrency=threads)(kind).remote(*arguments)
