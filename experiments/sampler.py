"""Samples what a process's Python threads are doing, weighted by the processor time that each has used, and counts the
messages that its task sends.

Python's start-up installs it (`sitecustomize`) in what becomes the parent of Ray's workers; it begins in each process
that is forked of that one, and writes what it has several times a second, as workers are killed. It imports the
standard library alone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

DIRECTORY = "DPA_SAMPLES"
"""The environment variable with the directory that samples are written to."""

_SECONDS, _WRITES = 0.004, 50
"""Seconds between two samples, and samples between two writes: what a process does last is in no sample."""

_SWITCH = 2e-4
"""Seconds after which a thread yields to the sampler. By Python's own 5 ms it would mostly see calls that yield by
themselves, as Arrow's do."""

_ACTORS = "dpa.runtime.actors.actor"
"""The module that has the class whose `send` sends messages."""


def install() -> None:
    """Sample each process that is forked of this one, if the environment says where to write."""
    if DIRECTORY in os.environ:
        os.register_at_fork(after_in_child=_start)


def _start() -> None:
    messages: Counter[str] = Counter()
    if _ACTORS in sys.modules:
        _count(sys.modules[_ACTORS], messages)
    threading.Thread(target=_sample, args=(messages,), name="sampler", daemon=True).start()


def _count(module: Any, messages: Counter[str]) -> None:
    send = module.Task.send

    def counted(task: Any, envelope: Any) -> None:
        messages[type(envelope.message).__name__] += 1
        send(task, envelope)

    module.Task.send = counted


def _sample(messages: Counter[str]) -> None:
    sys.setswitchinterval(_SWITCH)
    path = Path(os.environ[DIRECTORY], f"{os.getpid()}.json")
    spent: Counter[tuple[str, ...]] = Counter()
    before: dict[int, float] = {}
    own, number = threading.get_ident(), 0
    while True:
        time.sleep(_SECONDS)
        for thread, frame in sys._current_frames().items():
            with suppress(OSError):
                now = time.clock_gettime(time.pthread_getcpuclockid(thread))
                used, before[thread] = now - before.get(thread, now), now
                if used > 0 and thread != own:
                    spent[_stack(frame)] += used  # type: ignore[assignment]
        number += 1
        if number % _WRITES == 0:
            title = Path("/proc/self/cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
            found = {"process": title, "cpu": time.process_time() - before[own]}
            text = json.dumps({**found, "messages": messages, "stacks": [*spent.items()]})
            path.with_suffix(".new").write_text(text, encoding="utf-8")
            path.with_suffix(".new").replace(path)


def _stack(frame: Any) -> tuple[str, ...]:
    """The innermost call first, each as `file:function`."""
    calls = []
    while frame is not None:
        calls.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(calls)
