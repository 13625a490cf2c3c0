"""When the inputs of a job come to their end that have none of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from dpa._util.durations import Duration


@dataclass(frozen=True, kw_only=True)
class Until:
    """When inputs that are open are closed: at the first of these that comes, or at Ctrl-C. What has come by then is
    still processed."""

    seconds: Annotated[Duration, Gt(0)] | None = None
    """Seconds of the stream, or a text as `500ms`, `2m` or `1h`; null: any."""
    records: Annotated[int, Ge(1)] | None = None
    """Rows read of all inputs together, at least; null: any number. The split in which the last one is is read to its
    end."""
    idle: Annotated[Duration, Gt(0)] | None = None
    """Seconds in which nothing has come while all that had come was read; null: the job waits however long it takes."""
