"""What Ray reports of its workers: it would print it, in colours, between the lines that show a job's progress."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_log = logging.getLogger(__name__)

_ADVICE = "Some common causes include: "
"""With this begins what Ray says to whomever a worker has died."""


@contextmanager
def ray_messages_logged() -> Iterator[None]:
    """Have a Ray that is connected to in this block log what it reports of its workers. What concerns a job, the job
    says itself. A Ray that is built differently prints it, as always."""
    from ray._private import worker

    printed = getattr(worker, "print_to_stdstream", None)
    if printed is None:
        yield
        return

    def logged(data: Mapping[str, Any], *details: Any, **more: Any) -> None:
        if data.get("pid") != "raylet":
            printed(data, *details, **more)
            return
        for line in data["lines"]:
            _log.warning("Ray: %s", " ".join(line.partition(_ADVICE)[0].split()))

    worker.print_to_stdstream = logged
    try:
        yield
    finally:
        worker.print_to_stdstream = printed
