"""What a session keeps of Spark, and directories with staged input, which are removed whatever goes wrong with one."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from dpa.sources.paths import Location
from dpa.spark import _session as leftovers
from dpa.spark._session import users_path
from dpa.spark._stage import new_stage


class Stubborn(Location):
    """Cannot be removed at first."""

    failures = 1

    def remove_directory(self) -> None:
        if Stubborn.failures:
            Stubborn.failures -= 1
            raise OSError(39, "Directory not empty")
        super().remove_directory()


@pytest.fixture(autouse=True)
def _nothing_noted() -> Iterator[None]:
    noted, leftovers._PLACES[:] = [*leftovers._PLACES], []
    yield
    leftovers._PLACES[:] = noted


def stage(directory: Path, name: str, kind: type[Location] = Location) -> Location:
    """A directory with a file in it, noted."""
    (directory / name).mkdir()
    (directory / name / "part").touch()
    place = kind(fs.LocalFileSystem(), str(directory / name))
    leftovers.add_place(place)
    return place


@pytest.mark.parametrize("for_good", [True, False])
def test_a_directory_removed_for_good_is_forgotten_and_another_removed_again(tmp_path: Path, for_good: bool) -> None:
    leftovers.remove_place(stage(tmp_path, "one"), for_good=for_good)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "one").mkdir()  # somebody else's, if it was for good
    leftovers.remove_places()
    assert list(tmp_path.iterdir()) == [tmp_path / "one"] * for_good


def test_one_that_stays_holds_up_no_other_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stubborn, "failures", 2)
    places = [stage(tmp_path, "one"), stage(tmp_path, "two", Stubborn), stage(tmp_path, "three")]
    leftovers.remove_place(places[1], for_good=True)
    leftovers.remove_places()
    assert list(tmp_path.iterdir()) == [tmp_path / "two"]
    leftovers.remove_places()
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_in_the_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stubborn, "failures", 1)
    stage(tmp_path, "one", Stubborn)
    with pytest.warns(RuntimeWarning, match="one, where input was staged, could not be removed"):
        leftovers._at_exit()


def test_a_forked_process_removes_nothing_of_its_parents(tmp_path: Path) -> None:
    stage(tmp_path, "one")
    child = os.fork()
    if not child:
        try:
            leftovers.remove_places()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "one" / "part").exists()


def test_the_staged_input_is_for_its_owner_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dpa.spark._stage.gettempdir", lambda: str(tmp_path))
    with new_stage(None):
        [directory] = tmp_path.iterdir()
        assert directory.stat().st_mode & 0o777 == 0o700
    with new_stage(str(tmp_path)):  # machines share it, and perhaps not by this user alone
        [directory] = tmp_path.iterdir()
        assert directory.stat().st_mode & 0o500 == 0o500
    assert list(tmp_path.iterdir()) == []


def test_what_ray_and_spark_add_to_the_search_path_starts_no_other_spark(monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", ["/job", "/venv/site-packages"])
    before = users_path()
    sys.path.insert(1, "/venv/site-packages/ray/thirdparty_files")
    sys.path.insert(1, "/tmp/dpa-spark-x/spark-1/userFiles-2")
    assert users_path() == before == ("/job", "/venv/site-packages")
    sys.path.insert(0, "/another")
    assert users_path() != before
