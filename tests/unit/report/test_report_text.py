"""Numbers and keys as people read them."""

import json
from datetime import date, datetime
from decimal import Decimal

import pytest
import report_samples as samples

from dpa.balance.decision import Outcome
from dpa.result.text import bar, clock, count, key_text, lines, one_line, outcomes, percent, seconds, short, skew


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1.00k"),
        (1_234, "1.23k"),
        (9_999, "10.0k"),
        (131_072, "131k"),
        (999_999, "1.00M"),
        (24_000_000, "24.0M"),
        (5e15, "5,000T"),
        (float("nan"), "n/a"),
    ],
)
def test_a_short_count_has_three_digits_and_a_unit(number: float, expected: str) -> None:
    assert short(number) == expected


@pytest.mark.parametrize(
    ("duration", "expected"),
    [(0.314, "0.31 s"), (9.999, "10.0 s"), (119.94, "119.9 s"), (125, "2:05"), (3_600, "1:00:00"), (None, "n/a")],
)
def test_a_duration_is_in_seconds_until_minutes_read_better(duration: float | None, expected: str) -> None:
    assert seconds(duration) == expected


def test_numbers_that_are_none_are_said_to_be_missing() -> None:
    assert (count(float("inf")), percent(float("nan")), skew(None), skew(float("nan"))) == (
        "n/a", "n/a", "not asked for", "n/a",
    )  # fmt: skip


def test_a_clock_shows_hours_only_if_there_are_any() -> None:
    assert [clock(12.9), clock(61), clock(3_723)] == ["0:12", "1:01", "1:02:03"]


def test_outcomes_are_words_and_the_most_frequent_comes_first() -> None:
    assert (
        outcomes({Outcome.APPLIED: 4, "below_threshold": 1_200, "cool_down": 0}) == "1,200 below threshold, 4 applied"
    )


@pytest.mark.parametrize(
    ("share", "drawn"), [(0, ""), (1, "████"), (0.5, "██"), (0.53, "██▏"), (7, "████"), (float("nan"), "")]
)
def test_a_bar_never_leaves_its_width(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn


def test_the_least_load_is_seen_in_a_bar() -> None:
    assert bar(1e-6, 10) == "▏"


def test_a_bar_can_do_without_block_characters() -> None:
    assert bar(0.5, 4, ascii_only=True) == "##"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("the", "the"),
        ("two words", "two words"),
        ("東京", "東京"),
        (5, "5"),
        ("5", '"5"'),
        ("-1e3", '"-1e3"'),
        (None, "null"),
        ("null", '"null"'),
        ("", '""'),
        (" x", '" x"'),
        ('say "hi"', 'say "hi"'),
        ('"hi"', '"\\"hi\\""'),
        ("a\\nb", '"a\\\\nb"'),
        ("a\nb", '"a\\nb"'),
        ("\x1b[31m", '"\\x1b[31m"'),
        ("\u202e", '"\\u202e"'),
        ("\U000e0001", '"\\U000e0001"'),
        (b"\xff", "b'\\xff'"),
        ("b'\\xff'", "\"b'\\\\xff'\""),
        ("x" * 5_000, "x" * 36 + "... (5,000 characters)"),
        (b"x" * 5_000, "b'" + "x" * 36 + "'... (5,000 bytes)"),
        (True, "true"),
        ("true", '"true"'),
        (date(2026, 1, 31), "2026-01-31"),
        ("2026-01-31", '"2026-01-31"'),
        (datetime(2026, 1, 31, 12), "2026-01-31 12:00:00"),
        (Decimal("1.50"), "1.50"),
        (("DE", 5), "(DE, 5)"),
        (("DE", "5", None), '(DE, "5", null)'),
        (("DE, 5)", ""), '("DE, 5)", "")'),
        (("x" * 5_000, 1), "(" + "x" * 8 + "... (5,000 characters), 1)"),
    ],
)
def test_a_key_is_shown_as(key: object, expected: str) -> None:
    assert key_text(key) == expected


@pytest.mark.parametrize("key", samples.NASTY_KEYS, ids=range(len(samples.NASTY_KEYS)))
def test_whatever_a_key_is_it_prints_on_one_line(key: object) -> None:
    shown = key_text(key)
    assert shown.isprintable()
    assert len(shown) <= 200
    shown.encode("utf-8")


def test_no_two_nasty_keys_look_alike() -> None:
    assert len({key_text(key) for key in samples.NASTY_KEYS}) == len(samples.NASTY_KEYS)


def test_a_quoted_key_without_rare_characters_is_json() -> None:
    assert json.loads(key_text('"a\\b\n\t')) == '"a\\b\n\t'


def test_a_line_that_is_too_long_is_cut_and_counted() -> None:
    assert one_line("x" * 1_000, 100) == "x" * 76 + "... (1,000 characters)"


def test_of_a_long_error_the_end_is_shown() -> None:
    shown = lines("\n".join(f"frame {number}" for number in range(100)) + "\nValueError: \x07", limit=3)
    assert shown == ["... 99 earlier lines are in report.json", "frame 99", "ValueError: \\x07"]
