import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from dpa._util.sharing import Shared


class Events:
    """A context that notes when it is entered and left, and which time that is."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.times = 0

    @contextmanager
    def __call__(self) -> Iterator[int]:
        self.times += 1
        self.seen.append(f"enter {self.times}")
        try:
            yield self.times
        finally:
            self.seen.append(f"leave {self.times}")


def test_the_first_enters_and_the_last_leaves_in_whatever_order_they_end() -> None:
    shared, events = Shared[int](), Events()
    first, second = ExitStack(), ExitStack()
    assert first.enter_context(shared.use(events)) == 1
    assert second.enter_context(shared.use(events)) == 1
    first.close()
    assert events.seen == ["enter 1"]
    second.close()
    assert events.seen == ["enter 1", "leave 1"]
    with shared.use(events) as value:
        assert value == 2
    assert events.seen == ["enter 1", "leave 1", "enter 2", "leave 2"]


def test_an_error_of_one_leaves_the_others_alone() -> None:
    shared, events = Shared[int](), Events()
    with shared.use(events):
        with pytest.raises(RuntimeError), shared.use(events):
            raise RuntimeError
        assert events.seen == ["enter 1"]
    assert events.seen == ["enter 1", "leave 1"]


def test_what_cannot_be_entered_is_tried_again_by_the_next() -> None:
    shared, events = Shared[int](), Events()

    @contextmanager
    def broken() -> Iterator[int]:
        raise OSError("no")
        yield 0

    with pytest.raises(OSError), shared.use(broken):
        pass
    with shared.use(events) as value:
        assert value == 1


def test_who_comes_while_it_is_entered_in_another_thread_waits_and_gets_the_same() -> None:
    shared, events = Shared[int](), Events()
    entering, go_on, got = threading.Event(), threading.Event(), []

    @contextmanager
    def slow() -> Iterator[int]:
        entering.set()
        go_on.wait(10)
        with events() as value:
            yield value

    both_are_in = threading.Barrier(2)

    def work() -> None:
        with shared.use(slow) as value:
            both_are_in.wait(10)
            got.append(value)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    entering.wait(10)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert got == [1, 1]
    assert events.seen == ["enter 1", "leave 1"]
