"""How long a thread waits for a processor, on this machine's own."""

from __future__ import annotations

import hashlib
import os
import sys
import threading

import pytest

from dpa.runtime.actors._process import CoreWait

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how long a thread waits")

_BYTES = bytes(2**20)
"""Hashing so many keeps a processor busy without the interpreter."""


def _work_on(processor: int, stop: threading.Event) -> None:
    os.sched_setaffinity(0, {processor})  # of this thread alone
    while not stop.is_set():
        hashlib.sha256(_BYTES)


@linux
def test_a_thread_that_shares_its_processor_waits_for_it() -> None:
    """Two threads want the same one: whichever is measured has to wait, sooner or later."""
    processor = min(os.sched_getaffinity(0))
    stop, waited = threading.Event(), threading.Event()

    def measured() -> None:
        wait = CoreWait()
        before = wait.seconds
        os.sched_setaffinity(0, {processor})
        while wait.seconds == before:
            hashlib.sha256(_BYTES)
        waited.set()

    other = threading.Thread(target=_work_on, args=(processor, stop), daemon=True)
    one = threading.Thread(target=measured, daemon=True)
    other.start()
    one.start()
    assert waited.wait(60)
    stop.set()
    one.join()
    other.join()


@linux
def test_the_time_waited_never_decreases() -> None:
    wait = CoreWait()
    found = [wait.seconds for _ in range(100)]
    assert found == sorted(found)
    assert found[0] >= 0.0


def test_where_the_system_does_not_say_it_the_time_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "get_native_id", lambda: 2**40)  # there is no such thread
    assert CoreWait().seconds == 0.0
