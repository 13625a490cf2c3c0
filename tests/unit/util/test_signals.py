import importlib
import signal
import subprocess
import sys
import textwrap
import threading
import types
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from dpa._util.signals import ENDING, interrupts_held, terminal_kept_away
from dpa.driver import interrupts
from dpa.driver.interrupts import Interrupts
from dpa.telemetry.tracker import TrackedSnapshot


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers are afterwards what they were before."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_interrupt_is_held_back_until_the_block_has_ended_but_a_second_one_gets_through() -> None:
    for times in (1, 2):
        reached = 0
        with pytest.raises(KeyboardInterrupt), interrupts_held():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
                reached += 1
        assert reached == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_block_that_holds_an_interrupt_back_can_be_hurried_and_may_then_fail() -> None:
    seen: list[str] = []
    with pytest.raises(KeyboardInterrupt), interrupts_held(hurry=lambda: seen.append("hurry")):
        assert seen == []
        signal.raise_signal(signal.SIGINT)
        assert seen == ["hurry"]
        raise OSError("what was started has been killed")


@pytest.mark.parametrize("number", ENDING[1:], ids=str)
def test_the_others_are_held_back_too_and_count_once(number: int) -> None:
    seen: list[int] = []
    signal.signal(number, lambda number, frame: seen.append(number))
    with interrupts_held():
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert seen == []
    assert seen == [number]


@pytest.mark.parametrize("context", [interrupts_held, Interrupts])
def test_what_nohup_ignores_stays_ignored(context: Callable[[], AbstractContextManager[object]]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with context():
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("number", ENDING, ids=str)
def test_each_of_them_interrupts_a_job_but_only_ctrl_c_does_so_twice(number: int) -> None:
    before = signal.getsignal(number)
    with Interrupts() as context:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt) if number == signal.SIGINT else nullcontext():
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            context.check()
    assert signal.getsignal(number) == before


def test_the_first_ctrl_c_closes_an_input_that_is_open_and_the_second_interrupts() -> None:
    with Interrupts() as context:
        context.update(TrackedSnapshot("stream", 0.0, 0, (), is_open=True))
        assert not context.closes
        signal.raise_signal(signal.SIGINT)
        assert context.closes
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with Interrupts() as context:
        context.update(TrackedSnapshot("stream", 0.0, 0, (), is_open=True))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


SWALLOWING = """
import os, signal
swallowed = False
try:
    for _ in range({times}):
        os.kill(os.getpid(), signal.{name})
except BaseException:  # as modules written in C do
    swallowed = True
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT"])
def test_an_interrupt_waits_for_a_running_import(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = _import(SWALLOWING.format(times=1, name=name), tmp_path, monkeypatch)
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        module = imported()
        assert not module.swallowed
        threading.Event().wait(60)


def test_an_interrupt_that_waits_is_raised_at_the_jobs_end_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_LOOK_SECONDS", 60.0)
    ended = False
    with pytest.raises(KeyboardInterrupt), Interrupts():
        _import(SWALLOWING.format(times=1, name="SIGTERM"), tmp_path, monkeypatch)()
        ended = True
    assert ended
    with Interrupts() as context:
        _import(SWALLOWING.format(times=1, name="SIGTERM"), tmp_path, monkeypatch)()
        with pytest.raises(KeyboardInterrupt):
            context.check()
        signal.raise_signal(signal.SIGTERM)
        context.check()


def test_an_error_in_the_place_of_an_interrupt_is_one_and_other_errors_stay_what_they_are() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            raise OSError("Transport endpoint is not connected")
    with pytest.raises(OSError, match="not connected"), Interrupts():
        raise OSError("Transport endpoint is not connected")


def test_an_interrupt_waits_while_another_thread_imports_what_is_imported(tmp_path: Path) -> None:
    name, began, ends = f"slow_{uuid.uuid4().hex}", threading.Event(), threading.Event()
    (tmp_path / f"{name}.py").write_text("import sys\nsys.modules['slow_hook'].waits()\n")
    hook: Any = types.ModuleType("slow_hook")
    hook.waits = lambda: (began.set(), ends.wait(30))
    sys.modules["slow_hook"] = hook
    sys.path.insert(0, str(tmp_path))
    try:
        other = threading.Thread(target=importlib.import_module, args=(name,))
        other.start()
        began.wait(30)
        threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGHUP)).start()
        threading.Timer(0.3, ends.set).start()
        with pytest.raises(KeyboardInterrupt), Interrupts():
            exec(f"import {name}")
            threading.Event().wait(30)
        assert ends.is_set(), "the import was interrupted"
        other.join(30)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop(name, None)
        del sys.modules["slow_hook"]


@pytest.mark.parametrize(
    ("times", "name", "waits"),
    [(1, "SIGTERM", "    import threading; threading.Event().wait(60)\n"), (2, "SIGINT", "")],
)
def test_an_import_that_does_not_end_is_interrupted_and_by_a_second_ctrl_c_any(
    times: int, name: str, waits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if waits:
        monkeypatch.setattr(interrupts, "_WAIT_SECONDS", 0.05)
    code = SWALLOWING.format(times=times, name=name).replace("except", f"{waits}except")
    imported = _import(code, tmp_path, monkeypatch)
    with Interrupts() as context:
        assert imported().swallowed
        with pytest.raises(KeyboardInterrupt):
            context.check()


def test_a_job_that_is_run_by_an_import_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = textwrap.indent(SWALLOWING.format(times=1, name="SIGINT"), "    ")
    runs = f"from dpa.driver.interrupts import Interrupts\nwith Interrupts():{job}"
    assert _import(runs, tmp_path, monkeypatch)().swallowed


def _import(code: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A function that imports a module of this code, which no other test has imported."""
    name = f"module_{uuid.uuid4().hex}"
    (directory / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(directory)
    return lambda: importlib.import_module(name)


def test_a_process_does_not_receive_what_a_terminal_sends_to_all() -> None:
    both = "import os, signal; os.kill(os.getpid(), signal.SIGHUP); os.kill(os.getpid(), signal.SIGQUIT)"
    with terminal_kept_away():
        assert subprocess.run([sys.executable, "-S", "-c", both], check=False).returncode == 0
    assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_outside_of_the_main_thread_no_handler_is_touched() -> None:
    def look() -> object:
        with interrupts_held():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(look).result() is signal.default_int_handler
