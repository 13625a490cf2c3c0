import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, threading, time
import polars
from concurrent.futures import ThreadPoolExecutor
from dpa.driver.interrupts import ProgramEnd

started = threading.Event()

def job():
    until = time.monotonic() + {seconds}
    with ProgramEnd() as end:
        started.set()
        try:
            while time.monotonic() < until:
                end.check()
                time.sleep(0.01)
            print("the job ran to its end")
        except KeyboardInterrupt:
            time.sleep(0.3)  # cleaning up
            print("the job was interrupted")

def in_a_thread():
    threading.Thread(target=job).start()
    started.wait()

"""

INTERRUPTED = {
    "a thread that the main one waits for": """
in_a_thread()
job_thread = threading.enumerate()[1]
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
job_thread.join()
""",
    "a thread that the main one does not wait for": "in_a_thread()\nsignal.raise_signal(signal.SIGINT)",
    "a thread that is waited for meanwhile": """
try:
    in_a_thread()
    signal.raise_signal(signal.SIGINT)
finally:
    threading.enumerate()[1].join()
""",
    "an executor": """
with ThreadPoolExecutor() as pool:
    pool.submit(job)
    started.wait()
    signal.raise_signal(signal.SIGINT)
""",
}

UNDISTURBED = {
    "the main thread ends": "in_a_thread()",
    "the main thread goes on after a Ctrl-C": """
in_a_thread()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    time.sleep(0.05)
threading.enumerate()[1].join()
""",
    "the program fails": "in_a_thread()\nraise ValueError",
}


@pytest.mark.parametrize("rest", [*INTERRUPTED, *UNDISTURBED])
def test_a_job_in_another_thread_ends_with_a_program_that_ctrl_c_ends_and_goes_on_otherwise(rest: str) -> None:
    program = PROGRAM.format(seconds=100 if rest in INTERRUPTED else 0.8) + (INTERRUPTED | UNDISTURBED)[rest]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == ("the job was interrupted\n" if rest in INTERRUPTED else "the job ran to its end\n")
