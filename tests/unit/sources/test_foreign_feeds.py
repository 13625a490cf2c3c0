"""What the feed of another package may say, beyond its rows, reaches who asks."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dpa import Feed, Page
from dpa.errors import TableError
from dpa.sources.feed import NumberedFeed
from dpa.sources.foreign import ForeignFeed
from dpa.sources.splits import channel_of
from jobs.text_files import Lines, TextFiles


@dataclass(frozen=True)
class LinesOf(Lines):
    """Some lines of a file, which is their channel."""

    @property
    def channel(self) -> str:
        return Path(self.path).stem


class Archived(TextFiles):
    """Files that wait to be removed."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.released: list[Any] = []

    def poll(self, split_rows: int, position: Any = None) -> Page:
        page = super().poll(split_rows, position)
        return Page([LinesOf(split.path, split.rows) for split in page.splits], page.position)  # type: ignore[attr-defined]

    def release(self, position: Any, unread: Sequence[Any]) -> None:
        self.released += [position, *unread]
        if position is None:
            raise OSError("nothing was read")

    def lag(self, position: Any) -> Mapping[str, int]:
        return {Path(file).stem: 1 for file in self.files[position or 0 :]}


def test_channels_lag_and_release_pass_through(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("to be\nor not\n", encoding="utf-8")
    archived = Archived(str(tmp_path))
    feed = NumberedFeed(ForeignFeed(archived, "archived"))
    page = feed.poll(10)
    [split] = pickle.loads(pickle.dumps(page.splits))
    assert channel_of(split) == channel_of(split.after(1)) == "a"
    assert feed.lag(page.position) == {"b": 1}
    feed.release(page.position, [split.after(1)])
    [lines] = archived.poll(10).splits
    assert archived.released == [1, replace(lines, rows=1, start=1)], "its own splits, as far as they are unread"
    with pytest.raises(TableError, match=r"archived.release: OSError: nothing was read"):
        feed.release(None, [])


def test_all_that_a_feed_may_say_passes_through() -> None:
    said = {name for name, _ in inspect.getmembers(Feed) if not name.startswith("_")}
    said.remove("rows_now")  # made of what polls give
    assert said - vars(ForeignFeed).keys() == {"is_open", "patience", "poll_seconds"}, "these are copied"
