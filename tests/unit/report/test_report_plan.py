"""What `--plan` says of a forecast on the terminal and as JSON."""

import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import forecast_samples as samples
import pytest
from report_samples import NASTY_KEYS

from dpa.driver.forecast import Forecast
from dpa.report import plan_json, show_plan
from dpa.report._plan_content import MAX_TASKS

SAMPLES = {**samples.SAMPLES, "chain of 40": lambda: samples.chain(40), "no stages": lambda: samples.forecast([])}

every_sample = pytest.mark.parametrize("made", SAMPLES.values(), ids=SAMPLES)


def lines(forecast: Forecast, width: int = 100, encoding: str = "utf-8", **options: bool) -> list[str]:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as stream:
        show_plan(forecast, stream, width=width, **options)
        return raw.getvalue().decode(encoding).splitlines()


def words(loads: Sequence[int], hottest: int, strategy: str, grouping: str = "ring", **changes: Any) -> str:
    """The plan of a mapper and a reducer in one line."""
    changes = {"key": "a", "hottest": hottest, "strategy": strategy, "grouping": grouping, **changes}
    return " ".join(" ".join(lines(samples.word_count(loads, **changes))).split())


def test_a_plan_of_a_mapper_and_a_reducer_is_compact_and_the_whole_job_comes_last_if_it_is_wanted() -> None:
    assert lines(samples.word_count(), 80) == [
        "mapper  read parquet, 2 tasks, 20,000,000 rows, 100,000 sampled",
        "└── map words ->",
        "    reducer  reduce Count by word, 4 tasks, ~24.0M records,",
        "             S 0.167: slightly uneven",
        "",
        "reducer: forecast skew S 0.167, without balancing: slightly uneven",
        "task  tokens   ring  records  share",
        "   0      64  25.0%   30,000  25.0%  ██████▊",
        "   1      64  25.0%   45,000  37.5%  ██████████",
        "   2      64  25.0%   21,000  17.5%  ████▊",
        "   3      64  25.0%   24,000  20.0%  █████▍",
        "",
        "hot keys of the sample",
        "key  share  records",
        "the   7.8%    9,300",
    ]
    brief, whole = lines(samples.word_count()), lines(samples.word_count(), verbose=True)
    assert whole[: len(brief) + 2] == [*brief, "", "resolved job"] and len(whole) > len(brief) + 2


def test_a_chain_shows_rates_as_far_as_they_are_known_and_the_key_that_is_too_hot() -> None:
    assert lines(samples.trending(), 120)[:7] == [
        "tweets  read Tweets, 2 tasks, 50.0k records/s, 20,000,000 rows, 100,000 sampled",
        "└── flat_map hashtags, key by tag ->",
        "    counts  reduce Count by tag, 4 tasks, ~55.3k records/s, S 0.523: uneven, hot key tag0",
        "    └── map by_letter, key by letter ->",
        "        partial  reduce Ranking by letter, 2 tasks, sample: 18,300 records, S 0.082: slightly uneven",
        "        └── flat_map entries ->",
        "            ranking  reduce Ranking, 1 task, sample: 260 records",
    ]


def test_a_tree_that_is_too_deep_goes_on_further_down() -> None:
    shown = lines(samples.chain(16), 80)
    place = next(place for place, line in enumerate(shown) if line.strip() == "└── key by a -> stage11, below")
    assert shown[place + 1] == "stage11  map something, 2 tasks, ~2.00k records"


def test_a_terminal_that_knows_ascii_only_gets_a_tree_and_bars_of_it() -> None:
    shown = lines(samples.diamond(), 80, "ascii")
    assert shown[1:9] == [
        "+-- filter is_error ->",
        "|   errors  map with_code, 2 tasks, sample: 8,000 records",
        "|   `-- key by page (sample: 8,000 records) ->",
        "|       totals  reduce Totals by page, 3 tasks, sample: 200,000 records,",
        "|               S 0.175: slightly uneven",
        "+-- filter is_page ->",
        "|   pages  map by_page, 4 tasks, sample: 92,000 records",
        "|   `-- key by page (sample: 92,000 records) -> totals, above",
    ]
    assert "   0      64  33.3%   90,000  45.0%  ##########" in shown


@every_sample
@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_stage_is_drawn_once_in_full_and_no_line_is_too_wide(made: Callable[[], Forecast], width: int) -> None:
    forecast = made()
    shown = lines(forecast, width)
    assert max(map(len, shown), default=0) <= width
    trees = shown[: shown.index("") if "" in shown else None]
    begun: list[str] = []
    for stage in forecast.stages:
        start = stage.name if len(stage.name) < 10 else rf"{stage.name[:10]}\w*"
        begun += [line for line in trees if re.match(rf"[│ ├└─]*{start}  \w", line)]
        assert len(begun) == forecast.stages.index(stage) + 1
    inner = [line for line in begun if line.startswith((" ", "│"))]
    references = re.findall(r"-> \w+(?:\s*\w+)?,[│\s]*(?:above|below)", "\n".join(trees))
    assert len(references) == len(forecast.edges) - len(inner)


def test_two_edges_between_the_same_stages_are_both_drawn() -> None:
    stages = [samples.source("a", "read A"), samples.operator("b", "map f", 30)]
    edges = ("a", "b", ["filter g"], 10), ("a", "b", ["filter h"], 20)
    assert lines(samples.forecast(stages, *edges))[1:] == [
        "├── filter g (~2.00k records) ->",
        "│   b  map f, 2 tasks, ~6.00k records",
        "└── filter h (~4.00k records) -> b, above",
    ]


def test_a_source_says_what_is_known_of_its_rows() -> None:
    for changes, facts in (
        ({"rows": 100_000}, "2 tasks, 100,000 rows"),
        ({"rows": None}, "2 tasks, 100,000 rows sampled"),
        ({"rate": 1_000.0, "rows": None}, "2 tasks, 1.00k records/s, 100,000 rows sampled"),
        ({"tasks": 1, "rows": 1, "sampled": 1}, "1 task, 1 row"),
    ):
        source = samples.source("mapper", "read parquet", **changes)
        assert lines(samples.forecast([source])) == [f"mapper  read parquet, {facts}"]


SPLITS = "dpa will split it over tasks if its records have to wait"


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"strategy": "adaptive"}, f"{SPLITS}; a combiner may leave nothing to split"),
        ({"strategy": "adaptive", "combinable": False}, f"{SPLITS} task"),
        ({"strategy": "halving"}, "only the strategy `adaptive`, a grouping that splits keys, or a combiner helps"),
        (
            {"strategy": "none", "grouping": "key", "combinable": False},
            "only the strategy `adaptive` or a grouping that splits keys helps",
        ),
        (
            {"strategy": "none", "combinable": False, "mergeable": False},
            "its states cannot be merged, so only a finer key helps",
        ),
    ],
    ids=["adaptive", "adaptive join", "halving", "join by key", "process"],
)
def test_a_key_that_is_more_than_an_even_share_is_named_with_what_helps(changes: dict[str, Any], advice: str) -> None:
    text = words((10, 60, 10, 20), 55, **changes)
    assert f"the key a alone is more than one task's even share; {advice}" in text
    assert "S 0.467: uneven, hot key a" in text


def test_a_hot_key_does_not_matter_where_its_records_are_folded_first_or_its_grouping_splits_it() -> None:
    text = words((26, 24, 25, 25), 60, "adaptive")
    assert "without balancing: already even" in text
    assert "S 0.013: even" in text
    assert "alone" not in text
    text = words((40, 20, 20, 20), 40, "none", "w_choices")
    assert "skew S 0.200, by the grouping `w_choices`, on tasks of equal speed: slightly uneven" in text
    assert "alone" not in text
    assert "task records share" in text, "nor is a ring shown"
    assert "hot keys of the sample key share records a 10.0% 10" in words((25, 25, 25, 25), 10, "adaptive")
    assert "hot keys" not in words((25, 25, 25, 25), 1, "adaptive", distinct=100)


def test_a_sample_is_called_as_even_as_it_is_and_nothing_is_said_of_one_task_or_no_records() -> None:
    for loads, word in (((25, 25), "even"), ((55, 45), "slightly uneven"), ((80, 20), "uneven")):
        text = words(loads, 0, "adaptive")
        assert re.search(rf"S 0\.\d+: {word} ", text)
        assert f"without balancing: {'already even' if word == 'even' else word} task" in text
    for loads in ((260,), (0, 0, 0)):
        stages = [samples.source("a", "read A"), samples.keyed("b", "reduce Sum by c", loads)]
        text = "\n".join(lines(samples.forecast(stages)))
        assert "S 0" not in text
        assert "task  tokens" not in text
    *_, last, more = lines(samples.word_count(tuple(range(100)), hottest=0))
    assert (last.split()[0], more) == (str(MAX_TASKS - 1), f"and {100 - MAX_TASKS} more tasks")


@pytest.mark.parametrize("key", NASTY_KEYS, ids=lambda key: repr(key)[:20])
def test_no_key_and_no_name_disturbs_the_terminal(key: Any) -> None:
    name = "two\nlines[bold]\x1b[31m"
    stages = [samples.source("a", name), samples.keyed(name, f"reduce {name}", (90, 10), key, 90)]
    shown = lines(samples.forecast(stages, ("a", name, [f"map {name}"], 100)), 80)
    assert all(line.isprintable() for line in shown)
    assert "└── map two\\nlines[bold]\\x1b[31m ->" in shown
    shown = lines(samples.word_count((90, 10), key="東京", hottest=90), 100, "ascii")
    assert any("\\u6771" in line for line in shown), "a stream that is not UTF-8 gets escapes"


def test_a_plan_that_nobody_reads_any_more_does_not_end_the_process() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            if text:
                raise BrokenPipeError
            return 0

    with pytest.raises(BrokenPipeError):
        show_plan(samples.word_count(), Gone(), width=100)


@every_sample
def test_json_has_every_stage_and_edge_with_its_estimate(made: Callable[[], Forecast]) -> None:
    forecast = made()
    plan = json.loads(plan_json(forecast))
    assert list(plan) == ["schema", "config", "stages", "edges", "joins", "placement"]
    assert plan["schema"] == "dpa-plan-2"
    assert [stage["name"] for stage in plan["stages"]] == [stage.name for stage in forecast.stages]
    for part, edge, estimate in zip(plan["edges"], forecast.edges, forecast.edge_estimates, strict=True):
        assert (part["source"], part["target"]) == (edge.source, edge.target)
        assert part["estimate"] == {"amount": estimate.amount, "basis": estimate.basis.value, "exact": estimate.exact}


def test_json_gives_rates_and_the_records_of_the_sample_as_such() -> None:
    plan = json.loads(plan_json(samples.trending()))
    assert [stage["estimate"] for stage in plan["stages"]] == [
        {"amount": 50_000.0, "basis": "per_second", "exact": True},
        {"amount": pytest.approx(55_300), "basis": "per_second", "exact": False},
        {"amount": 18_300, "basis": "sample", "exact": True},
        {"amount": 260, "basis": "sample", "exact": True},
    ]
