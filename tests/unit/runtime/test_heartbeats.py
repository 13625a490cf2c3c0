"""When a machine is taken for lost, whatever its clock says."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest

from dpa.runtime._machines import Heartbeats, Raylet, _greeting


class Process(Raylet):
    """One that answers as a test says."""

    answers = is_asked = True

    def _start(self) -> None:
        pass

    def has_answered(self) -> bool:
        return self.answers

    def ask(self) -> None:
        self.is_asked = True

    def end(self) -> None:
        self.is_asked = False


class Cluster:
    """Two machines, looked at twice a second of a clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked: dict[str, list[Process]] = {"a": [], "b": []}
        self.heartbeats = Heartbeats(self.of, lambda: self.now, self.pass_by)

    def of(self, node: str) -> Process:
        self.asked[node].append(Process(("host", 1)))
        return self.asked[node][-1]

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def lost_after(self, seconds: float, every: float = 0.5, nodes: Sequence[str] = ("a", "b")) -> dict[str, str]:
        for _ in range(round(seconds / every)):
            self.now += every
            if lost := self.heartbeats.lost(nodes):
                return lost
        return {}


def test_a_machine_is_lost_that_has_not_answered_for_eight_seconds_and_no_other() -> None:
    cluster = Cluster()
    assert not cluster.lost_after(5)
    cluster.asked["a"][0].answers = False
    assert not cluster.lost_after(7.5)
    cluster.asked["a"][0].answers = True
    assert not cluster.lost_after(60)
    cluster.asked["a"][0].answers = False
    assert not cluster.lost_after(7.5)
    assert cluster.lost_after(0.5) == {"a": "it has not answered for 8 s"}
    assert cluster.heartbeats.lost(("b",)) == {}
    assert not cluster.asked["a"][0].is_asked
    assert cluster.asked["b"][0].is_asked


def test_what_passes_while_who_listens_is_stopped_itself_does_not_count() -> None:
    cluster = Cluster()
    cluster.lost_after(1)
    cluster.asked["a"][0].answers = False
    assert not cluster.lost_after(7 * 3600, every=3600)
    assert cluster.lost_after(3600, every=3600)


def test_a_machine_is_lost_at_once_on_which_ray_has_ended_though_connections_are_still_taken() -> None:
    cluster = Cluster()
    cluster.lost_after(1)
    cluster.asked["b"][0].has_ended = True
    assert cluster.lost_after(0.5) == {"b": "Ray has ended there"}


def test_where_a_task_has_died_it_is_known_at_once_on_which_machines_ray_has_ended() -> None:
    cluster = Cluster()
    assert cluster.heartbeats.ended(("a", "b")) == set()
    a, b = cluster.asked["a"][0], cluster.asked["b"][0]
    a.answers, b.answers, b.has_ended = False, False, True
    began = cluster.now
    assert cluster.heartbeats.ended(("a", "b")) == {"b"}
    assert cluster.now - began < 0.3, "one that is silent may be slow"
    assert not cluster.lost_after(7.5, nodes=("a",))
    a.answers = True
    assert cluster.heartbeats.ended(("a",)) == set()
    a.answers = False
    assert not cluster.lost_after(7.5, nodes=("a",)), "it has answered meanwhile"


def test_a_raylet_that_ends_after_it_was_asked_is_known_to_have_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        raylet = Raylet(server.getsockname())
        heartbeats = Heartbeats({"a": raylet}.__getitem__)
        heartbeats.lost(("a",))
        for _ in range(2):
            speak(server, b"\0")
            assert answers(raylet)
        with server.accept()[0] as connection:
            connection.sendall(b"\0")
    assert heartbeats.ended(("a",)) == {"a"}, "what it said before it ended is no answer"
    raylet.end()


def answers(raylet: Raylet) -> bool:
    """Whether it answers, a moment after it should."""
    return any(raylet.has_answered() for _ in range(10_000))


def speak(server: socket.socket, said: bytes) -> None:
    """Take a connection, say something, and end it."""
    with server.accept()[0] as connection:
        connection.sendall(said)


def test_a_raylet_answers_that_speaks_or_hangs_up_but_not_one_whose_kernel_alone_takes_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        raylet = Raylet(server.getsockname())
        assert not answers(raylet)
        for said in (b"\0\0", b""):
            speak(server, said)
            assert answers(raylet)
        assert not answers(raylet) and not raylet.has_ended
        speak(server, b"\0")
    assert answers(raylet)
    assert not answers(raylet) and raylet.has_ended
    raylet.end()


def test_where_ray_uses_tls_a_raylet_is_greeted_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    _greeting.cache_clear()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            raylet = Raylet(server.getsockname())
            assert not answers(raylet)
            with server.accept()[0] as connection:
                assert not raylet.has_answered()
                assert connection.recv(6)[::5] == b"\x16\x01", "a record of a handshake: a client's hello"
                connection.sendall(b"\x16")
                assert answers(raylet)
    finally:
        _greeting.cache_clear()
    raylet.end()


def test_a_raylet_with_an_address_of_the_sixth_version_answers() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        raylet = Raylet(server.getsockname()[:2])
        speak(server, b"\0")
        assert answers(raylet)
    raylet.end()


def test_a_raylet_has_ended_whose_machine_refuses_connections_from_the_first_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    raylet = Raylet(address)
    assert not answers(raylet) and raylet.has_ended
    assert Heartbeats(lambda _: raylet).ended(("a",)) == {"a"}
    raylet.end()
