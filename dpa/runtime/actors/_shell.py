"""The shell around a state machine: a lock, a thread for user code and a ticker. It decides nothing.

Messages are handled on the thread that brings them, one at a time. User code has its own thread, so control messages
are taken in while it works."""

import itertools
import logging
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Protocol

import psutil  # Ray brings it

from dpa._secrets import hidden
from dpa._util.disk import is_full, why
from dpa._util.outages import HERE
from dpa.errors import DpaError
from dpa.execution.failures import running
from dpa.protocol.history.recording import Recorder, Recording
from dpa.protocol.machine import Machine
from dpa.protocol.recovery import TaskDiedError
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, FailureKind, TaskDied, Tick
from dpa.protocol.wire.instructions import Instruction, Send, StartTasks
from dpa.protocol.wire.use import TaskUse
from dpa.runtime.actors._pickled import PickledEnvelope, opened

_log = logging.getLogger(__name__)

TICK_SECONDS = 0.25  # how often a task reports its statistics

_USE_TICKS = 4  # ticks between two reports of what a task has used

_WITHOUT_USER_CODE: dict[type, str] = {  # what may take long without user code of this task
    StartTasks: "starting tasks, which import the modules of user code; not all of them are up"
}


class Host(Protocol):
    """Carries out what the machine in a shell says."""

    def send(self, envelope: Envelope) -> None: ...

    def flush(self) -> None:
        """Called when everything has been sent for events that came together."""

    def at_once(self, instruction: Instruction) -> bool:
        """Carry out an instruction that takes no time and need not wait until user code returns; whether it was one."""
        ...

    def work(self, instruction: Instruction) -> Event | None:
        """Carry out any other instruction, on the thread of user code; returns the event that answers it."""
        ...

    def failed(self, died: TaskDied) -> None:
        """Report that the task has failed, which ends the job."""

    def warn(self, message: str) -> None: ...

    def use(self) -> TaskUse: ...


class StateLog:
    """Logs each change of a machine's states and routing tables, never a record or a block. Costs nothing while the
    log is off."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known = machine.states()

    def look(self) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        known, self._known = self._known, self._machine.states()
        for what, state in self._known.items():
            if state != known[what]:
                _log.info("%s: %s -> %s", what, known[what], state)


class Shell:
    """Drives one machine until `stop`. Code outside that looks into the machine holds `lock`."""

    def __init__(self, machine: Machine, host: Host, stuck_seconds: float) -> None:
        """`host` warns of an instruction each time that it has taken another `stuck_seconds`."""
        self._machine = machine
        self._host = host
        self._recorder = Recorder(machine)
        self._states = StateLog(machine)
        self._stuck_seconds = stuck_seconds
        self._work_began: float | None = None
        self._awaited_before = 0.0
        self._works_on: Instruction | None = None
        self._warnings = 0
        self._worker = threading.Thread(target=self._run_jobs, name="user-code", daemon=True)
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)
        self._asides: list[threading.Thread] = []
        self.lock = threading.RLock()
        self._clock_start = time.time() - time.monotonic()  # setting the clock back stops nothing
        self._jobs: queue.SimpleQueue[Instruction | None] = queue.SimpleQueue()
        self._stopped = threading.Event()

    def start(self) -> None:
        _log.info("started")
        self._worker.start()
        self._ticker.start()

    def stop(self) -> None:
        """End the threads, once user code returns."""
        self._stopped.set()
        self._jobs.put(None)

    def end(self, seconds: float) -> bool:
        """Stop, and take in nothing more; whether user code, and work aside, returns within `seconds`."""
        self.stop()
        until = time.monotonic() + seconds
        with self.lock:
            threads = [self._worker, self._ticker, *self._asides]
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))
        with self.lock:
            return not any(thread.is_alive() for thread in threads)

    def receive(self, *pickled: PickledEnvelope | bytes) -> None:
        try:
            envelopes = [opened(each) for each in pickled]
        except BaseException as error:
            self._failed(error)
            return
        self.post(*envelopes)

    def post(self, *events: Event) -> None:
        """Hand events to the machine, one after the other, and carry out its instructions."""
        try:
            with self.lock:
                for event in events:
                    if self._stopped.is_set():
                        return
                    self._carry_out(self._recorder.handle(event, self._clock_start + time.monotonic()))
                self._host.flush()
        except BaseException as error:
            self._failed(error)

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        self._states.look()
        for instruction in instructions:
            if isinstance(instruction, Send):
                self._host.send(instruction.envelope)
            elif not self._host.at_once(instruction):
                self._jobs.put(instruction)

    def aside(self, work: Callable[[], Event | None]) -> None:
        """Do something that may take long on a thread of its own, as user code need not wait for it."""

        def run() -> None:
            try:
                event = work()
            except BaseException as error:
                self._failed(error)
                return
            if event is not None:
                self.post(event)

        thread = threading.Thread(target=run, name="aside", daemon=True)
        with self.lock:
            self._asides = [*(each for each in self._asides if each.is_alive()), thread]
            thread.start()

    def recording(self) -> Recording:
        with self.lock:
            return self._recorder.recording()

    def _run_jobs(self) -> None:
        while (instruction := self._jobs.get()) is not None and not self._stopped.is_set():
            self._warnings, self._works_on, self._awaited_before = 0, instruction, HERE.awaited
            self._work_began = time.monotonic()
            try:
                event = self._host.work(instruction)
            except BaseException as error:  # user code may call sys.exit(), and a panic in Rust is no Exception
                self._failed(error)
                return
            finally:
                self._work_began = None
            if event is not None:
                self.post(event)

    def _tick(self) -> None:
        psutil.cpu_percent()  # from here on
        for number in itertools.count(1):
            if self._stopped.wait(TICK_SECONDS):
                return
            self.post(Tick(psutil.cpu_percent() / 100, self._host.use() if number % _USE_TICKS == 0 else None))
            self._look_at_work()

    def _look_at_work(self) -> None:
        """Warn if the worker has been at one instruction for too long. Outages do not count, as others warn of them."""
        began, awaited = self._work_began, HERE.awaited - self._awaited_before
        if began is None or (taken := time.monotonic() - began - awaited) < (self._warnings + 1) * self._stuck_seconds:
            return
        self._warnings += 1
        at = running(sys._current_frames().get(self._worker.ident or 0))
        doing = f"in {at}" if at is not None else _WITHOUT_USER_CODE.get(type(self._works_on), "in no user code")
        self._host.warn(f"{self._machine.address} has been at one step for {taken:.0f} s; it is {doing}")

    def _failed(self, error: BaseException) -> None:
        if not self._stopped.is_set():
            self.stop()
            if isinstance(error, TaskDiedError):
                death = error.death
                self._host.failed(TaskDied(death.task, FailureKind.DIED, death.cause, death.what))
                return
            text = str(error) if isinstance(error, DpaError) else hidden(traceback.format_exc())
            if is_full(error) and not isinstance(error, DpaError):
                text = f"{why(error)}\n{text}"
            self._recorder.end(text)
            _log.error("failed: %s", text)
            self._host.failed(TaskDied(self._machine.address, FailureKind.RAISED, text))
