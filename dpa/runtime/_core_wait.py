"""How long a thread has waited for a processor: what it did not work of the time in which it was busy, where more
threads run than processors."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

_NANOSECONDS = 1e-9


class CoreWait:
    """The waiting time of the thread that made this. Linux says it, other systems do not: there it is always 0."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)

    @property
    def seconds(self) -> float:
        """Seconds so far in which the thread could have run and had no processor."""
        if self._file is None:
            return 0.0
        return int(os.pread(self._file, 128, 0).split()[1]) * _NANOSECONDS
