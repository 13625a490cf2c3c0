"""Contexts, threads and the environment: a resource that jobs in several threads share, one that starts and ends in the
background, and environment variables that only some child processes inherit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

from dpa._util.signals import interrupts_held

T = TypeVar("T")

_TURN = threading.RLock()


class Shared(Generic[T]):
    """One context for any number of blocks in any threads. The first block enters it, and the last one leaves it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._context: AbstractContextManager[T]
        self._value: T

    @contextmanager
    def use(self, context: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
        """Yield the open context's value; without one, open what `context` makes. Callers wait while another enters or
        leaves."""
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


class Background(Generic[T]):
    """Enters and leaves a context in a thread of its own, beside the block. The block's end waits for both, so an
    entered context is always left. (Threads of `concurrent.futures` end with the main thread, which a job in another
    thread may outlive.)"""

    def __init__(self, context: AbstractContextManager[T]) -> None:
        self._context = context
        self._entered: Future[T] = Future()
        self._leaving = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="dpa-background")  # a daemon where its maker is one

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
    """Set environment variables in this block; no thread is in `own_environment` meanwhile."""
    with _TURN:
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


@contextmanager
def own_environment() -> Iterator[None]:
    """Start processes in this block that inherit nothing which another thread sets by `environment`."""
    with _TURN:
        yield
