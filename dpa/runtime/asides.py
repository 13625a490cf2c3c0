"""What a coordinator does aside, on threads beside its worker: it polls open inputs, and writes the log by epoch."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from typing import Any

from dpa._secrets import hidden
from dpa._util.outages import HERE, may_pass
from dpa.errors import TableError
from dpa.protocol.checkpoint_format import written
from dpa.protocol.wire.epochs import EndedEpoch
from dpa.protocol.wire.events import PollDone
from dpa.protocol.wire.snapshots import JobSnapshot
from dpa.sinks.epoch_log import EpochLog
from dpa.sinks.sink import EpochLogOptions
from dpa.sources.feed import Feed, Position

_EVERY = 1.0  # seconds of rows in one file


class OpenFeeds:
    """The feeds of one generation."""

    def __init__(
        self, unpacked: Callable[[], Mapping[str, Feed]], split_rows: int, is_over: Callable[[float], bool]
    ) -> None:
        """`unpacked` makes them at the first poll; `is_over` waits for some seconds, and returns whether the generation
        has ended."""
        self._unpacked = unpacked
        self._split_rows = split_rows
        self._is_over = is_over
        self._unpacking = threading.Lock()
        self._feeds: Mapping[str, Feed] = {}
        self._newest: JobSnapshot | None = None

    def poll(self, stage: str, position: Position, *, for_lag: bool = False) -> PollDone | None:
        """What has come to the input of `stage` after a position; waits a moment if nothing has. None: the generation
        has ended meanwhile."""
        with self._unpacking:
            if not self._feeds:
                self._feeds = self._unpacked()
        feed = self._feeds[stage]
        if for_lag:
            behind = None
            with suppress(Exception):  # that is unknown then; a poll for splits reports why
                behind = feed.lag(position.value)
            return PollDone(stage, (), position, for_lag=True, behind=behind)
        page = HERE.bear(lambda: feed.poll(self._split_rows, position.value), patience=feed.patience)
        if not page.splits and page.position is not None and self._is_over(feed.poll_seconds):
            return None
        more = None if page.position is None else Position(page.position)
        return PollDone(stage, tuple(page.splits), more)

    def release(self, written: JobSnapshot) -> None:
        """Let feeds forget what no checkpoint needs, unless a reference is to read it; `written`: the newest."""
        # The job may continue with either of the two newest: what the older one has read can go.
        before, self._newest = self._newest, written
        sources = {} if before is None else before.sources
        for name, source in sources.items():
            if name in self._feeds and source.given is None and source.position is not None:
                self._feeds[name].release(source.position.value, source.rest)


class LoggedEpochs:
    """The log by epoch of a generation. A failure ends the log with a warning, and not the job."""

    def __init__(
        self,
        options: EpochLogOptions | None,
        behind: int,
        warn: Callable[[str], None],
        dumps: Callable[[object], bytes],
    ) -> None:
        """Without options nothing is logged; `behind`: the epoch with which the generation begins; `dumps` pickles
        splits."""
        self._warn, self._dumps = warn, dumps
        self._rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._waiting: list[dict[str, Any]] = []  # that could not be written, and go first
        self._log: EpochLog | None = None
        self._begin = None if options is None else partial(EpochLog, options, behind)
        self._is_late = False
        self._written_at = -_EVERY
        self._attempt(lambda log: None)

    def note(self, ended: EndedEpoch) -> bool:
        """Note an epoch; whether it is time to `write`."""
        if self._begin is not None:
            self._rows.append(_row(ended, self._dumps))
        return self._begin is not None and time.monotonic() - self._written_at >= _EVERY

    def write(self) -> None:
        with self._lock:
            if not self._waiting:
                self._waiting, self._rows = self._rows, []
            if not self._waiting:
                return
            self._written_at = time.monotonic()
            if self._attempt(lambda log: log.add(self._waiting)):
                self._waiting = []

    def _attempt(self, action: Callable[[EpochLog], None]) -> bool:
        """Use the log, and begin it first if its place has not answered before; whether that is done."""
        # Nobody waits for the log's place: the job begins without it.
        if self._begin is None:
            return False
        try:
            self._log = self._log or self._begin()
            action(self._log)
        except Exception as error:
            if not may_pass(error):
                self._give_up(error)
            elif not self._is_late:
                self._warn(f"the log of epochs waits for its place: {hidden(str(error))}")
            self._is_late = True
            return False
        self._is_late = False
        return True

    def close(self) -> None:
        """Write what was noted, and add no more."""
        self.write()
        self.write()  # what has come while something waited
        with self._lock:
            if self._waiting:
                self._give_up(TableError("its last epochs are not in it"))
            log, self._log, self._begin = self._log, None, None
            try:
                if log is not None:
                    log.close()
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._log, self._begin, self._rows, self._waiting = None, None, [], []
        self._warn(f"the log of epochs ends here, and the job continues without it: {hidden(str(error))}")


def _row(ended: EndedEpoch, dumps: Callable[[object], bytes]) -> dict[str, Any]:
    row = {name: value for name, value in vars(ended).items() if name not in ("slot", "stages", "splits")}
    return {
        **row,
        "ended": datetime.now(timezone.utc),
        "checkpoint": ended.slot,
        "stages": [{"stage": name, **vars(stage)} for name, stage in ended.stages.items()],
        "splits": written(dict(ended.splits), dumps),
    }
