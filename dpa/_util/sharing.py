"""Contexts and threads: a resource that jobs in several threads of one process share, of which the first starts it and
the last ends it; and one that starts and ends while its job does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from dpa._util.signals import interrupts_held

T = TypeVar("T")


class Shared(Generic[T]):
    """One context for any number of blocks, in any threads: it is entered with the first of them, and left with the
    last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._context: AbstractContextManager[T]
        self._value: T

    @contextmanager
    def use(self, context: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
        """Yield the value of the context that is open, or else of a new one, which `context` makes. Callers wait
        while it is being entered or left."""
        with self._lock:
            if self._users == 0:
                self._context = context()
                self._value = self._context.__enter__()
            self._users += 1
        try:
            yield self._value
        finally:
            with interrupts_held(), self._lock:
                self._users -= 1
                if self._users == 0:
                    self._context.__exit__(None, None, None)


class _Worker:
    """A thread that makes calls, one after the other, until it is closed. Unlike the thread of an executor of
    `concurrent.futures` it does not end with the main thread, which a job in another thread may outlive."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name)  # a daemon where its maker is one
        self._thread.start()

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Have a call made; returns its future result."""
        future: Future[T] = Future()

        def make() -> None:
            try:
                future.set_result(call(*arguments))
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(make)
        return future

    def close(self) -> None:
        """Wait until all calls are made, and end the thread."""
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        for call in iter(self._calls.get, None):
            call()


@contextmanager
def in_lasting_thread(context: AbstractContextManager[T]) -> Iterator[T]:
    """Enter and leave a context in a thread that lasts as long as the block: on Linux, a child process that is to die
    with its parent dies with the *thread* that started it. The main thread lasts long enough by itself."""
    if threading.current_thread() is threading.main_thread():
        with context as value:
            yield value
        return
    with closing(_Worker("dpa-lasting")) as worker:
        value = worker.submit(context.__enter__).result()
        try:
            yield value
        finally:
            worker.submit(context.__exit__, None, None, None).result()


class Background(Generic[T]):
    """A context that is entered and left in a thread of its own, while the block that it is used for goes on.

    The block's end waits for both: what was entered is always left.
    """

    def __init__(self, context: AbstractContextManager[T]) -> None:
        self._context = context
        self._worker: _Worker
        self._entered: Future[T]
        self._left: Future[None] | None = None

    def __enter__(self) -> Background[T]:
        self._worker = _Worker("dpa-background")
        self._entered = self._worker.submit(self._context.__enter__)
        return self

    @property
    def is_entered(self) -> bool:
        """Whether the context has been entered, or could not be: `value` waits no longer."""
        return self._entered.done()

    def value(self) -> T:
        """Wait until the context has been entered; returns its value, or raises what entering it raised."""
        return self._entered.result()

    def leave(self) -> None:
        """Begin to leave the context before the block ends."""
        if self._left is None:
            self._left = self._worker.submit(self._leave)

    def __exit__(self, *raised: object) -> None:
        with interrupts_held(), closing(self._worker):
            self.leave()
            if self._left is not None:
                self._left.result()

    def _leave(self) -> None:
        if self._entered.exception() is None:
            self._context.__exit__(None, None, None)
