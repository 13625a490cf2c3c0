"""The pictures of hand-overs: their steps come in the order in which the page tells them, and can be read."""

import itertools
import re
from functools import cache
from pathlib import Path

import pytest

from dpa.errors import DpaError
from experiments.hand_overs.examples import EXAMPLES, MOVE, REDISTRIBUTION, A, B, N
from experiments.hand_overs.story import Kind, StepRule, Story, tell

ROOT = Path(__file__).parents[3]


@cache
def story_of(name: str) -> Story:
    """The story of an example, for all tests that look at it."""
    return EXAMPLES[name].story()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_explains_each_step_of(name: str) -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    _, shown, below = page.partition(f"]({name}.png)")
    assert shown
    numbers = re.findall(r"^(\d+)\. ", below.partition("\n### ")[0], re.MULTILINE)
    explained = list(itertools.takewhile(lambda pair: pair[0] == int(pair[1]), enumerate(numbers, 1)))
    assert len(explained) == len(story_of(name).steps)


def test_a_redistribution_sends_states_before_records_and_markers_and_both_tasks_keep_records_aside() -> None:
    story = story_of(REDISTRIBUTION.name)
    end = story.steps[-1].at  # another redistribution follows
    given = [arrow for arrow in story.arrows if (arrow.sender, arrow.receiver) == (A, B) and arrow.came < end]
    assert [arrow.label.partition(":")[0] for arrow in given] == ["states", "forwarded", "marker"]
    assert all(one.came <= other.came for one, other in itertools.pairwise(given))
    [leaving, waiting] = [stretch for stretch in story.stretches if stretch.kind is None and stretch.end < end]
    assert (leaving.who, leaving.end) == (A, given[0].sent)
    assert waiting.who == B and leaving.start < waiting.start < leaving.end < waiting.end


def test_a_task_that_moves_keeps_nothing_aside_and_is_stopped_when_the_new_one_has_its_states() -> None:
    story = story_of(MOVE.name)
    assert all(stretch.kind is not None for stretch in story.stretches)
    installed = [stretch.end for stretch in story.stretches if (stretch.who, stretch.kind) == (N, Kind.STATES)]
    assert installed and max(installed) < story.lives[A][1] == story.steps[-1].at
    assert story.lives[N][0] == story.steps[1].at
    never = StepRule(A, lambda happening: False)
    with pytest.raises(DpaError, match="does not take step 1"):
        tell(MOVE.job, MOVE.seed, MOVE.cast, [never])
