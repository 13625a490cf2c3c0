"""Contexts, threads and the environment: a resource that jobs in several threads share, or that stays from job to job,
one that starts and ends in the background, and environment variables that only some child processes inherit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

from dpa._util.signals import interrupts_held

T = TypeVar("T")

OWN_ENVIRONMENT = threading.RLock()
"""Who holds it starts processes that inherit nothing which another thread sets by `environment`."""


class Shared(Generic[T]):
    """One context for any number of blocks in any threads. The first block enters it. The last one leaves it, unless it
    is kept for blocks to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = self._keepers = 0
        self._context: AbstractContextManager[T] | None = None
        self._value: T
        self._key: Hashable

    @property
    def is_kept(self) -> bool:
        return self._keepers > 0

    @property
    def opened(self) -> T | None:
        return None if self._context is None else self._value

    @contextmanager
    def use(
        self,
        context: Callable[[], AbstractContextManager[T]],
        key: Hashable = None,
        lives: Callable[[T], bool] = lambda value: True,
    ) -> Iterator[T]:
        """Yield the open context's value; without one, open what `context` makes. Callers wait while another enters or
        leaves. One that is only kept is replaced if it was opened with another key, or lives no more."""
        self.leave_unless(lambda value: self._key == key and lives(value))
        with self._lock:
            if self._context is None:
                entered = context()
                self._value, self._key = entered.__enter__(), key
                self._context = entered
            self._users += 1
        try:
            yield self._value
        finally:
            with interrupts_held(), self._lock:
                self._users -= 1
                self._leave_unused()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what is open, or is opened in this block, until the block ends."""
        with self._lock:
            self._keepers += 1
        try:
            yield
        finally:
            with interrupts_held(), self._lock:
                self._keepers -= 1
                self._leave_unused()

    def leave_unless(self, lives: Callable[[T], bool]) -> None:
        """Leave what is only kept, unless it lives."""
        with self._lock:
            if self._users == 0 and self._context is not None and not lives(self._value):
                self._leave()

    def _leave_unused(self) -> None:
        if self._users == self._keepers == 0:
            self._leave()

    def _leave(self) -> None:
        left, self._context = self._context, None
        if left is not None:
            left.__exit__(None, None, None)


class Background(Generic[T]):
    """Enters and leaves a context in a thread of its own, beside the block. The block's end waits for both, so an
    entered context is always left. (Threads of `concurrent.futures` end with the main thread, which a job in another
    thread may outlive.)"""

    def __init__(self, context: AbstractContextManager[T]) -> None:
        self._context = context
        self._entered: Future[T] = Future()
        self._leaving = threading.Event()
        self._failure: BaseException | None = None
        # A session that is never closed does not keep the interpreter from its end.
        self._thread = threading.Thread(target=self._run, name="dpa-background", daemon=True)

    def __enter__(self) -> Background[T]:
        self._thread.start()
        return self

    @property
    def is_entered(self) -> bool:
        """Whether entering has ended, well or not, so that `value` does not wait."""
        return self._entered.done()

    def value(self) -> T:
        """Wait for the context's value, or raise what entering it raised."""
        return self._entered.result()

    def leave(self) -> None:
        """Start to leave the context before the block ends."""
        self._leaving.set()

    def __exit__(self, *raised: object) -> None:
        with interrupts_held():
            self.leave()
            try:
                self._thread.join()
            finally:
                self._thread.join()  # a second Ctrl-C gets through, but not before the context is left
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with self._context as value:
                self._entered.set_result(value)
                self._leaving.wait()
        except BaseException as error:
            if self._entered.done():
                self._failure = error
            else:
                self._entered.set_exception(error)


@contextmanager
def in_lasting_thread(context: AbstractContextManager[T]) -> Iterator[T]:
    """Enter and leave a context in one thread that lasts as long as the block. On Linux, a child that shall die with
    its parent dies with the *thread* that started it. The main thread lasts long enough."""
    if threading.current_thread() is threading.main_thread():
        with context as value:
            yield value
        return
    with Background(context) as background:
        yield background.value()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in this block, which holds `OWN_ENVIRONMENT`."""
    with OWN_ENVIRONMENT:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
