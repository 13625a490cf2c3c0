"""`dpa.session`: a block whose jobs share one Ray, processes that are up, and one Spark (docs/sessions.md)."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from typing import overload

from dpa.windows import options
from dpa.windows.options import Windows


class Session:
    """Ray, processes for the next job's tasks and, once a job has used it, Spark stay from job to job while this is
    open. Sessions may be nested, and used from any thread: those of one process share what they keep.

        with dpa.session():
            first.run()
            second.run()

    Where no block can be, as in a notebook, call `open` and `close`.
    """

    def __init__(self) -> None:
        """Not open yet."""
        self._kept = ExitStack()

    def open(self) -> Session:
        """Keep what jobs start from now on."""
        from dpa.runtime.cluster import ray_kept
        from dpa.spark import spark_kept

        self._kept.enter_context(ray_kept())
        self._kept.enter_context(spark_kept())
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """End what is kept, unless another session or a running job uses it. Closing twice does no harm."""
        atexit.unregister(self.close)
        self._kept.close()

    def __enter__(self) -> Session:
        """Open it."""
        return self.open()

    def __exit__(self, *raised: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """How it was made."""
        return "dpa.session()"


@overload
def session() -> Session: ...


@overload
def session(gap: float | str, *, lateness: float | str = 0.0) -> Windows: ...


def session(gap: float | str | None = None, *, lateness: float | str = 0.0) -> Session | Windows:
    """Without a gap, a block in which jobs start at once; with one, session windows.

        with dpa.session():
            job.run()

        rows.window(dpa.session("30m"))

    Args:
        gap: records of a key are in one window as long as none is further than this from the next; seconds, or a text
            as `1m`.
        lateness: as in `Windows`.

    Raises:
        ConfigError: a duration is none, or does not fit.
    """
    return Session() if gap is None else options.session(gap, lateness=lateness)
