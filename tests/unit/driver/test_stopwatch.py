"""How the wall time of a run is divided into its phases."""

from dpa.driver.summary import Stopwatch
from dpa.result import Seconds


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_phase_ends_where_the_next_one_begins_also_if_it_began_a_while_ago() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    for now, phase, ago in [(101.0, "load", 0.0), (103.0, "startup", 0.0), (108.0, "stream", 1.0)]:
        clock.now = now
        watch.enter(phase, ago)
    clock.now = 110.0
    expected = Seconds(load=2.0, startup=4.0, stream=3.0, total=10.0)
    assert watch.seconds() == expected
    assert watch.seconds() == expected, "asking changed the answer"


def test_time_between_phases_belongs_to_none() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    watch.enter("merge")
    clock.now = 101.0
    watch.enter(None)
    clock.now = 105.0
    watch.correct(merge=0.5)
    assert watch.seconds(first_record=100.25) == Seconds(merge=0.5, total=5.0, first_record=0.25)


def test_a_phase_begins_no_sooner_than_the_one_before_it() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    watch.enter("startup")
    clock.now = 101.0
    watch.enter("stream", ago=60.0)
    clock.now = 102.0
    assert watch.seconds() == Seconds(startup=0.0, stream=2.0, total=2.0)
