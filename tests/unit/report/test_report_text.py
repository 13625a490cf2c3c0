"""Numbers and keys as people read them."""

import json
from datetime import date, datetime
from decimal import Decimal

import pytest
import report_samples as samples

from dpa.balance.decision import Outcome
from dpa.result.text import bar, clock, count, key_text, lines, one_line, outcomes, percent, seconds, short, skew


def test_a_short_count_has_three_digits_and_a_unit_and_a_duration_is_in_seconds_until_minutes_read_better() -> None:
    for number, expected in (
        *((0, "0"), (999, "999"), (999.6, "1.00k"), (1_234, "1.23k"), (9_999, "10.0k"), (131_072, "131k")),
        *((999_999, "1.00M"), (24_000_000, "24.0M"), (5e15, "5,000T"), (float("nan"), "n/a")),
    ):
        assert short(number) == expected
    durations = (0.314, 9.999, 119.94, 125, 3_600, None)
    assert [seconds(each) for each in durations] == ["0.31 s", "10.0 s", "119.9 s", "2:05", "1:00:00", "n/a"]


def test_numbers_are_short_or_said_to_be_missing_outcomes_are_words_and_bars_never_leave_their_width() -> None:
    assert [count(float("inf")), percent(float("nan")), skew(float("nan"))] == ["n/a"] * 3
    assert skew(None) == "not asked for"
    assert [clock(12.9), clock(61), clock(3_723)] == ["0:12", "1:01", "1:02:03"]
    found = outcomes({Outcome.APPLIED: 4, "below_threshold": 1_200, "cool_down": 0})
    assert found == "1,200 below threshold, 4 applied"
    shares = (0, 1e-6, 1, 0.5, 0.53, 7, float("nan"))
    assert [bar(share, 4) for share in shares] == ["", "▏", "████", "██", "██▏", "████", ""]
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


def test_whatever_a_key_is_it_prints_on_one_line_no_two_look_alike_and_what_is_too_long_is_cut() -> None:
    shown = [key_text(key) for key in samples.NASTY_KEYS]
    assert all(each.isprintable() and len(each) <= 200 and each.encode("utf-8").decode() == each for each in shown)
    assert len(set(shown)) == len(shown)
    assert json.loads(key_text('"a\\b\n\t')) == '"a\\b\n\t', "without rare characters it is JSON"
    assert one_line("x" * 1_000, 100) == "x" * 76 + "... (1,000 characters)"
    shown = lines("\n".join(f"frame {number}" for number in range(100)) + "\nValueError: \x07", limit=3)
    assert shown == ["... 99 earlier lines are in report.json", "frame 99", "ValueError: \\x07"]
