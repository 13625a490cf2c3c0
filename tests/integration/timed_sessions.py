"""Sessions of the example job, with timers."""

from datetime import datetime, timezone
from typing import Any

from jobs.sessions import Session, Sessions


class TimedSessions(Sessions):
    """Sessions that are given, and forgotten, when event time has passed their gap."""

    def timer(self, key: int, state: Session | None) -> datetime | None:
        return None if state is None else datetime.fromtimestamp(state.ended + self.gap + 1, timezone.utc)

    def on_time(self, key: int, state: Session | None, time: datetime) -> tuple[None, list[dict[str, Any]]]:
        return None, self.finish(key, state)
