"""The open inputs of a job, as the coordinator's process asks them for what has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from dpa._util.outages import HERE
from dpa.protocol.wire.cut import Cut
from dpa.protocol.wire.events import PollDone
from dpa.sources.feed import Feed, Position


class OpenFeeds:
    """Those of one generation; used by threads beside the worker."""

    def __init__(self, unpacked: Callable[[], Mapping[str, Feed]], split_rows: int, ended: threading.Event) -> None:
        """`unpacked` makes them, when the first is asked; `split_rows`: most rows of a split; `ended`: nobody waits
        for an answer any more."""
        self._unpacked = unpacked
        self._split_rows = split_rows
        self._ended = ended
        self._unpacking = threading.Lock()
        self._feeds: Mapping[str, Feed] = {}
        self._newest: Cut | None = None

    def poll(self, stage: str, position: Position) -> PollDone | None:
        """What has come to the input of `stage` behind a position; where that is nothing, a moment later. None: the job
        has ended meanwhile."""
        with self._unpacking:
            if not self._feeds:
                self._feeds = self._unpacked()
        feed = self._feeds[stage]
        page = HERE.bear(lambda: feed.poll(self._split_rows, position.value), patience=feed.patience)
        if not page.splits and page.position is not None and self._ended.wait(feed.poll_seconds):
            return None
        more = None if page.position is None else Position(page.position)
        return PollDone(stage, tuple(page.splits), more)

    def release(self, written: Cut) -> None:
        """Let feeds forget what is not read again, whichever of the two newest checkpoints the job goes on with, unless
        a reference is to read it; `written`: the newest."""
        before, self._newest = self._newest, written
        sources = {} if before is None else before.sources
        for name, source in sources.items():
            if name in self._feeds and source.given is None and source.position is not None:
                self._feeds[name].release(source.position.value, source.rest)
