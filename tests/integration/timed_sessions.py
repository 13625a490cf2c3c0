"""Sessions of the example job, with timers, and visits counted by the clock."""

from datetime import datetime, timedelta, timezone
from typing import Any

from dpa import Process
from jobs.sessions import Session, Sessions


class TimedSessions(Sessions):
    """Sessions that are given, and forgotten, when event time has passed their gap."""

    def timer(self, key: int, state: Session | None) -> datetime | None:
        return None if state is None else datetime.fromtimestamp(state.ended + self.gap + 1, timezone.utc)

    def on_time(self, key: int, state: Session | None, time: datetime) -> tuple[None, list[dict[str, Any]]]:
        return None, self.finish(key, state)


class Bursts(Process[dict[str, Any], dict[str, Any]]):
    """The visits of each user that are read in half a second from the first one on, given and forgotten after that."""

    def zero(self) -> dict[str, Any]:
        return {"visits": 0}

    def process(self, key: int, state: dict[str, Any], value: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return {"since": value["read_at"], **state, "visits": state["visits"] + 1}, []

    def timer(self, key: int, state: dict[str, Any]) -> datetime | None:
        return state["since"] + timedelta(seconds=0.5) if "since" in state else None

    def on_time(self, key: int, state: dict[str, Any], time: datetime) -> tuple[None, list[dict[str, Any]]]:
        return None, [{"user": key, "visits": state["visits"], "until": time}]
