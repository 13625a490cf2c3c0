"""The shell around a state machine: a lock, a thread for user code, a ticker, and nothing that thinks.

Messages are handled on whichever thread brings them, one at a time; user code runs on a thread of its own, so control
messages are taken in while it works.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable

from dpa.errors import DpaError
from dpa.protocol.machine import Event, Instruction, Machine, Send, Tick
from dpa.protocol.messages import Envelope
from dpa.runtime.parcel import Parcel

TICK_SECONDS = 0.25
"""How often a task reports its statistics."""

Work = Callable[[Instruction], Event | None]


class Shell:
    """Drives one machine until `stop`. Whoever looks into the machine from outside holds `lock` meanwhile."""

    def __init__(
        self,
        machine: Machine,
        *,
        send: Callable[[Envelope], None],
        work: Work,
        fail: Callable[[str], None],
    ) -> None:
        """`send` delivers an envelope, `work` carries out any other instruction and returns the event that answers it,
        `fail` reports an error that ends the job."""
        self._machine = machine
        self._send = send
        self._work = work
        self._fail = fail
        self.lock = threading.RLock()
        self._clock_start = time.time() - time.monotonic()  # setting the clock back stops nothing
        self._jobs: queue.SimpleQueue[Instruction | None] = queue.SimpleQueue()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the threads."""
        threading.Thread(target=self._run_jobs, name="user-code", daemon=True).start()
        threading.Thread(target=self._tick, name="ticker", daemon=True).start()

    def stop(self) -> None:
        """End the threads, once user code returns."""
        self._stopped.set()
        self._jobs.put(None)

    def receive(self, parcel: Parcel) -> None:
        """Open a parcel and hand the message to the machine."""
        try:
            envelope = parcel.open()
        except BaseException as error:
            self._failed(error)
            return
        self.post(envelope)

    def post(self, event: Event) -> None:
        """Hand an event to the machine and carry out what it says."""
        try:
            with self.lock:
                for instruction in self._machine.handle(event, self._clock_start + time.monotonic()):
                    if isinstance(instruction, Send):
                        self._send(instruction.envelope)
                    else:
                        self._jobs.put(instruction)
        except BaseException as error:
            self._failed(error)

    def _run_jobs(self) -> None:
        while (instruction := self._jobs.get()) is not None and not self._stopped.is_set():
            try:
                event = self._work(instruction)
            except BaseException as error:  # user code may call sys.exit(), and a panic in Rust is no Exception
                self._failed(error)
                return
            if event is not None:
                self.post(event)

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            self.post(Tick())

    def _failed(self, error: BaseException) -> None:
        if not self._stopped.is_set():
            self.stop()
            text = str(error) if isinstance(error, DpaError) else traceback.format_exc()
            self._fail(f"{self._machine.address}: {text}")
