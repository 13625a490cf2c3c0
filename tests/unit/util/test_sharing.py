import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from dpa._util.sharing import OWN_ENVIRONMENT, Background, Shared, environment


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


@contextmanager
def broken() -> Iterator[int]:
    raise OSError("no")
    yield 0


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


def test_what_is_kept_stays_for_later_blocks_and_is_left_with_the_last_that_keeps_it() -> None:
    shared, events = Shared[int](), Events()
    with shared.kept():
        with shared.kept():
            assert shared.opened is None
            for _ in range(2):
                with shared.use(events) as value:
                    assert (value, shared.opened, shared.is_kept) == (1, 1, True)
        assert events.seen == ["enter 1"]
    assert events.seen == ["enter 1", "leave 1"] and shared.opened is None
    with shared.use(events):
        with shared.kept():
            pass
        assert events.seen[-1] == "enter 2", "it is in use"
    assert events.seen[-1] == "leave 2"


def test_what_is_only_kept_is_replaced_if_it_is_another_or_lives_no_more() -> None:
    shared, events = Shared[int](), Events()
    with shared.kept():
        with shared.use(events, "one") as first, shared.use(events, "other") as second:
            assert (first, second) == (1, 1), "it is in use"
        with shared.use(events, "other") as value:
            assert value == 2
        with shared.use(events, "other", lives=lambda value: value != 2) as value:
            assert value == 3
    assert events.seen == [f"{what} {number}" for number in (1, 2, 3) for what in ("enter", "leave")]


def test_an_error_of_one_leaves_the_others_alone_and_what_cannot_be_entered_is_tried_again_by_the_next() -> None:
    shared, events = Shared[int](), Events()
    with pytest.raises(OSError), shared.use(broken):
        pass
    with shared.use(events) as value:
        assert value == 1
        with pytest.raises(RuntimeError), shared.use(events):
            raise RuntimeError
        assert events.seen == ["enter 1"]
    assert events.seen == ["enter 1", "leave 1"]


def test_who_comes_while_it_is_entered_in_another_thread_waits_and_gets_the_same() -> None:
    shared, events = Shared[int](), Events()
    entering, go_on, both_are_in = threading.Event(), threading.Event(), threading.Barrier(2)

    @contextmanager
    def slow() -> Iterator[int]:
        entering.set()
        go_on.wait(60)
        with events() as value:
            yield value

    def work() -> int:
        with shared.use(slow) as value:
            both_are_in.wait(60)
            return value

    with ThreadPoolExecutor(2) as pool:
        got = [pool.submit(work) for _ in range(2)]
        entering.wait(60)
        go_on.set()
    assert [each.result() for each in got] == [1, 1]
    assert events.seen == ["enter 1", "leave 1"]


def test_a_context_in_the_background_is_entered_and_left_in_one_thread_while_the_block_goes_on() -> None:
    go_on, threads = threading.Event(), []

    @contextmanager
    def slow() -> Iterator[str]:
        assert go_on.wait(60)
        threads.append(threading.current_thread())
        yield "ready"
        threads.append(threading.current_thread())

    with Background(slow()) as background:
        assert threads == []
        go_on.set()
        assert background.value() == "ready"
    entered, left = threads
    assert entered is left is not threading.current_thread()


def test_a_context_in_the_background_is_left_once_if_its_block_ends_meanwhile_or_leaves_it_before() -> None:
    ending, left, events = threading.Event(), threading.Event(), Events()

    @contextmanager
    def slow() -> Iterator[int]:
        assert ending.wait(60)
        with events() as value:
            yield value
        left.set()

    with pytest.raises(RuntimeError), Background(slow()):
        ending.set()
        raise RuntimeError
    assert events.seen == ["enter 1", "leave 1"]
    left.clear()
    with Background(slow()) as background:
        assert background.value() == 2
        background.leave()
        assert left.wait(60)
    assert events.seen[2:] == ["enter 2", "leave 2"]


def test_what_cannot_be_entered_in_the_background_is_raised_to_who_asks_for_its_value_and_to_nobody_else() -> None:
    with Background(broken()) as background, pytest.raises(OSError, match="no"):
        background.value()
    with Background(broken()):
        pass


OUTLIVES_THE_MAIN_THREAD = """
import threading
from contextlib import contextmanager
from dpa._util.sharing import Background, in_lasting_thread

entered = threading.Event()

@contextmanager
def noted():
    thread = threading.current_thread()
    yield thread
    print("left", thread.is_alive(), thread is threading.current_thread())

def job():
    with in_lasting_thread(noted()) as lasting, Background(noted()) as background:
        others = [lasting, background.value()]
        entered.set()
        threading.main_thread().join()
        print("running", *(other.is_alive() for other in others))
        background.leave()

threading.Thread(target=job).start()
entered.wait()
"""


def test_what_a_job_in_another_thread_has_started_lasts_when_the_main_thread_ends() -> None:
    done = subprocess.run([sys.executable, "-c", OUTLIVES_THE_MAIN_THREAD], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "running True True\n" + 2 * "left True True\n")


def test_variables_are_set_for_the_block_and_are_then_what_they_were(monkeypatch) -> None:
    monkeypatch.setenv("DPA_TEST_OLD", "before")
    monkeypatch.delenv("DPA_TEST_NEW", raising=False)
    with environment({"DPA_TEST_OLD": "within", "DPA_TEST_NEW": "within"}):
        assert (os.environ["DPA_TEST_OLD"], os.environ["DPA_TEST_NEW"]) == ("within", "within")
    assert (os.environ["DPA_TEST_OLD"], os.environ.get("DPA_TEST_NEW")) == ("before", None)


def test_who_starts_processes_in_another_thread_sees_nothing_of_them() -> None:
    waiting = threading.Event()

    def start() -> str | None:
        waiting.set()
        with OWN_ENVIRONMENT:
            return os.environ.get("DPA_TEST_NEW")

    with ThreadPoolExecutor(1) as pool:
        with environment({"DPA_TEST_NEW": "within"}):
            seen = pool.submit(start)
            assert waiting.wait(60)
        assert seen.result(60) is None
