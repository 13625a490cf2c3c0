import os
import threading

from dpa._util.sharing import OWN_ENVIRONMENT, environment


def test_variables_are_set_for_the_block_and_are_then_what_they_were(monkeypatch) -> None:
    monkeypatch.setenv("DPA_TEST_OLD", "before")
    monkeypatch.delenv("DPA_TEST_NEW", raising=False)
    with environment({"DPA_TEST_OLD": "within", "DPA_TEST_NEW": "within"}):
        assert (os.environ["DPA_TEST_OLD"], os.environ["DPA_TEST_NEW"]) == ("within", "within")
    assert (os.environ["DPA_TEST_OLD"], os.environ.get("DPA_TEST_NEW")) == ("before", None)


def test_who_starts_processes_in_another_thread_sees_nothing_of_them() -> None:
    waiting, seen = threading.Event(), []

    def start() -> None:
        waiting.set()
        with OWN_ENVIRONMENT:
            seen.append(os.environ.get("DPA_TEST_NEW"))

    with environment({"DPA_TEST_NEW": "within"}):
        thread = threading.Thread(target=start)
        thread.start()
        assert waiting.wait(60)
    thread.join(60)
    assert seen == [None]
