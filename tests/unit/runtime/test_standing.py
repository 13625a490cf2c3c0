"""How a Ray that `dpa up` keeps is found: the directory of its keeper, played by this test. No Ray runs."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpa._util.owned import OwnedDirectory, users_directory
from dpa.errors import JobFailedError
from dpa.runtime.standing import PREFIX, SWITCH, TOKEN, Standing, let_in, made_with, usable


@pytest.fixture(autouse=True)
def _own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(SWITCH, raising=False)
    for name in (TOKEN, "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "before")
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def keeper() -> Iterator[OwnedDirectory]:
    directory = OwnedDirectory.make(users_directory(), PREFIX, mode=0o700)
    yield directory
    if directory.path.exists():
        directory.remove_directory()
    directory.release()


@pytest.fixture
def standing(keeper: OwnedDirectory) -> Standing:
    made = Standing(keeper.name, "127.0.0.1:1", "word", os.getpid(), 60.0, 100, made_with(), [])
    made.offer()
    return made


def test_what_a_keeper_offers_is_found_until_it_withdraws(standing: Standing) -> None:
    assert Standing.find() == standing
    assert standing.withdraw()
    assert Standing.find() is None


def test_the_token_is_for_its_user_alone(standing: Standing) -> None:
    offer = Path(standing.directory, "offer.json")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (offer, offer.parent, offer.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
    assert "word" in offer.read_text() and "word" not in repr(standing)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_offer_that_another_user_can_write_is_not_taken(standing: Standing, mode: int) -> None:
    Path(standing.directory, "offer.json").chmod(mode)
    assert Standing.find() is None


@pytest.mark.parametrize("content", ["{", '{"address": "127.0.0.1:1"}', "[]", None])
def test_a_link_or_another_shape_is_no_offer(standing: Standing, content: str | None, tmp_path: Path) -> None:
    offer = Path(standing.directory, "offer.json")
    if content is None:
        offer.rename(tmp_path / "elsewhere")
        offer.symlink_to(tmp_path / "elsewhere")
    else:
        offer.write_text(content)
    assert Standing.find() is None


def test_what_a_killed_keeper_left_is_removed(keeper: OwnedDirectory, standing: Standing) -> None:
    keeper.release()  # as the kernel does
    with pytest.raises(JobFailedError, match="has ended, and Ray with it: run the job again"):
        standing.require_alive()
    assert Standing.find() is None
    assert not keeper.path.exists()


def test_users_are_counted_and_killed_ones_are_forgotten(standing: Standing) -> None:
    killed = OwnedDirectory.make(Path(standing.directory), "use-")
    with standing.used() as first, standing.used() as second:
        assert (first, second, standing.users(), standing.unused_seconds()) == (True, True, 3, 0.0)
        killed.release()
        assert standing.users() == 2
        assert not standing.withdraw(), "it is used"
        standing.require_alive()
    assert standing.users() == 0
    os.utime(standing.directory, (0, time.time() - 100))
    assert 99 < standing.unused_seconds() < 200


def test_a_keeper_that_withdraws_its_ray_while_it_is_used_or_a_process_comes_is_noticed(
    keeper: OwnedDirectory, standing: Standing
) -> None:
    with standing.used():
        assert standing.withdraw(is_used_too=True)
        with pytest.raises(JobFailedError, match="has ended"):
            standing.require_alive()
    with standing.used() as is_there:
        assert not is_there
    keeper.remove_directory()
    with standing.used() as is_there:
        assert not is_there


def test_a_process_uses_it_with_its_token_and_says_so(standing: Standing, capsys: pytest.CaptureFixture[str]) -> None:
    assert let_in(100)
    assert (os.environ[TOKEN], os.environ["RAY_AUTH_MODE"]) == ("word", "token")
    with usable(100) as found:
        assert found == standing and standing.users() == 1
    assert standing.users() == 0
    assert capsys.readouterr().err == "using the session that `dpa up` started\n"


@pytest.mark.parametrize("name", [*made_with()])
def test_another_version_or_environment_is_not_used_and_the_user_reads_why(
    standing: Standing, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(standing, made_with={**standing.made_with, name: "another"}).offer()
    assert not let_in(100)
    with usable(100) as found:
        assert found is None
    assert os.environ[TOKEN] == "before"
    said = capsys.readouterr().err
    assert said.startswith(f"the session that `dpa up` started is not used: it has {name} another, and this process ")
    assert said.endswith("; to replace it: dpa down; dpa up\n")


def test_a_job_with_a_larger_object_store_and_a_process_with_another_token_do_not_use_it(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert standing.unfit(101) == "ray.object_store_mb is 101, and its object store has 100"
    monkeypatch.setitem(sys.modules, "ray", sys)
    assert standing.unfit() == "this process has imported Ray before, with another token"
    monkeypatch.setenv(TOKEN, "word")
    assert standing.unfit() is None


def test_a_process_can_do_without(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SWITCH, "none")
    assert not let_in(100)
    with usable(100) as found:
        assert found is None
    assert capsys.readouterr().err == ""
