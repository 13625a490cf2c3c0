"""How the process of a task is called in `ps` and `top`: by its job, stage and number.

Ray calls a process by the class of its actor, and anew with each call. Actors are made before anybody knows which tasks
they will be, so what Ray does for that is replaced; a Ray that is built differently shows its own names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SHORT = Path("/proc/self/comm")
"""What `top` shows, up to 15 characters; Linux only."""


def name_process(job: str, task: str, generation: int) -> None:
    """Call this process, which hosts an actor, by its job and its task, and by the generation from the second one on,
    from the actor's next call on."""
    task = f"{task}#{generation}" if generation else task
    import ray._raylet
    from ray._private import worker

    set_title = getattr(ray._raylet, "setproctitle", None)
    if set_title is None or not hasattr(worker, "_changeproctitle"):
        return

    @contextmanager
    def kept(*_of_the_call: str) -> Iterator[None]:
        set_title(f"ray::{job} {task}")
        yield

    worker._changeproctitle = kept
    with suppress(OSError):
        _SHORT.write_text(task)
