"""Property tests draw the same examples in every run; `HYPOTHESIS_PROFILE=explore` draws many new ones instead."""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

for name, examples in {"few": 10, "repeatable": 50, "explore": 1000, "fuzz": 10_000}.items():
    settings.register_profile(
        name,
        derandomize=examples <= 50,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

os.environ.setdefault("DPA_HISTORY", "0")  # nor is the history
os.environ.setdefault("DPA_SESSION", "none")  # a session of the developer's is not for tests

_HANDLERS = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
for number, handler in _HANDLERS.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        # A shell that runs the tests in the background, or `nohup`, has them ignore signals, and all that they start.
        signal.signal(number, handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage among what tests make, and not again and again among all modules: a tenth of their time."""
    gc.collect()
    gc.freeze()
