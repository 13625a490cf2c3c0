"""The files of a report: strict, atomic, without secrets, and as their schema says."""

import datetime
import json
import os
import stat
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import report_samples as samples
import yaml

from dpa._secrets import without_secrets
from dpa.balance.decision import Outcome
from dpa.errors import ConfigError, DpaError
from dpa.report import ReportError, check_directory, schema, to_json, write
from dpa.report._files import jsonable
from dpa.result import Report, SkewReport


def strict(text: str) -> Any:
    """`text` as JSON, refusing what only Python reads."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


REPORTS = {
    "usual": samples.report(),
    "empty": samples.empty_report(status="failed", error="oops"),
    "nasty": samples.report(hot_keys=samples.hot_keys(samples.NASTY_KEYS)),
    "many reducers": samples.report(64, rounds=40),
    "seven stages": samples.graph_report(),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_the_document_fits_its_schema_and_is_ascii(report: Report) -> None:
    text = to_json(report)
    jsonschema.validate(strict(text), schema())
    assert text.isascii()


def test_the_document_holds_the_report_and_the_schema_refuses_another_version() -> None:
    text = to_json(samples.report())
    document = strict(text)
    assert document["schema"] == "dpa-report-2"
    mapper, reducer = document["stages"]
    assert (mapper["name"], mapper["kind"], mapper["skew"]) == ("mapper", "source", None)
    assert reducer["redistributions"][0]["outcome"] == "applied"
    assert reducer["hot_keys"][5]["key"] == "東京"
    assert len(reducer["samples"]) == 121
    assert document["edges"] == [{"source": "mapper", "target": "reducer", "records": 24_000_000, "blocked": True}]
    assert all(len(line) <= 240 for line in text.splitlines() if not line.endswith(("]", "],")))
    assert '      "skew": {"dpa": 0.034, "static": 0.412, "spark": 0.398},\n' in text
    broken = samples.report(skew=SkewReport(float("nan"), float("inf"), None))
    assert strict(to_json(broken))["stages"][1]["skew"] == {"dpa": None, "static": None, "spark": None}
    jsonschema.Draft202012Validator.check_schema(schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "schema": "dpa-report-9"}, schema())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"caf\xc3\xa9", "b'caf\\xc3\\xa9'"),
        (Outcome.NO_TARGET, "no_target"),
        (Path("a") / "b", str(Path("a") / "b")),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone.utc), "2026-01-02 03:00:00+00:00"),
        (("DE", datetime.date(2026, 1, 2), None), ["DE", "2026-01-02", None]),
        (Decimal("1.50"), "1.50"),
        ((1, (2, 3)), [1, [2, 3]]),
        ({3, 1, 2}, [1, 2, 3]),
        ({None: 1, 5: 2, Outcome.APPLIED: 3}, {"null": 1, "5": 2, "applied": 3}),
        (np.float64("nan"), None),
        (np.int64(7), 7),
        ("\ud800", "\\ud800"),
        (2**70, 2**70),
    ],
)
def test_other_types_are_written_by_rule(value: object, expected: object) -> None:
    assert jsonable(value) == expected
    json.dumps(jsonable(value), allow_nan=False)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"password": "p"}, {"password": "***"}),
        ({"spark": {"conf": {"fs.s3a.secret.key": "k"}}}, {"spark": {"conf": {"fs.s3a.secret.key": "***"}}}),
        ({"fs.s3a.access.key": "k"}, {"fs.s3a.access.key": "***"}),
        ({"fs.s3a.session.token": "k"}, {"fs.s3a.session.token": "***"}),
        ({"env_vars": {"AWS_SECRET_ACCESS_KEY": "k"}}, {"env_vars": {"AWS_SECRET_ACCESS_KEY": "***"}}),
        ({"credentials": {"user": "u"}}, {"credentials": "***"}),
        ({"paths": ["s3://id:p@h/x", "s3://h/x"]}, {"paths": ["s3://id:***@h/x", "s3://h/x"]}),
        ({"password": None, "secret": ""}, None),
        (
            {"initial_tokens": 64, "token_format": "{node}-{token}", "tokenizer": "plain", "key": "word", "seed": 0},
            None,
        ),
    ],
)
def test_what_looks_like_a_secret_is_hidden(config: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert without_secrets(config) == (expected or config)


def test_three_files_are_written_and_replaced_which_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    directory, before = tmp_path / "deep" / "report", os.umask(0o022)
    config = {"name": "données", "balance": {"tau": 0.2, "strategy": "none"}, "spark": {"conf": {"x.password": "p"}}}
    try:
        paths = write(samples.report(config=config), directory)
    finally:
        os.umask(before)
    assert [path.name for path in paths] == ["report.json", "resolved.yaml", "report.html"]
    assert all(path.parent == directory for path in paths)
    assert stat.S_IMODE(paths[0].stat().st_mode) == 0o644
    assert strict(paths[0].read_text(encoding="ascii"))["name"] == "wordcount"
    resolved = paths[1].read_text(encoding="utf-8")
    assert list(yaml.safe_load(resolved)) == ["name", "balance", "spark"], "in its own order, without secrets"
    assert yaml.safe_load(resolved) == {**config, "spark": {"conf": {"x.password": "***"}}}
    assert "données" in resolved
    assert paths[2].read_text(encoding="utf-8").startswith("<!doctype html>")
    write(replace(samples.report(), name="second"), directory)
    assert sorted(path.name for path in directory.iterdir()) == ["report.html", "report.json", "resolved.yaml"]
    assert strict(paths[0].read_text())["name"] == "second"


def test_a_failed_write_is_named_and_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(samples.report(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DpaError, match="file/report: cannot write the report"):
        write(samples.report(), tmp_path / "file" / "report")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match=r"cannot write the report: .*No space left"):
        write(replace(samples.report(), name="second"), tmp_path)
    assert strict((tmp_path / "report.json").read_text())["name"] == "wordcount"
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("directory", "why"),
    [
        ("file", "cannot write to .*/file: Not a directory"),
        ("file/below/it", r"cannot write to .*/file/below/it: Not a directory \(.*/file\)"),
        ("loop", "cannot write to .*/loop: Too many levels of symbolic links"),
        ("out", "lies in output.path"),
        ("out/report", "lies in output.path"),
        ("rounds/report", "lies in output.1.path, .*/rounds, which holds results alone"),
        pytest.param(
            "/proc/report",
            r"cannot write to /proc/report: No such file or directory \(/proc\)",
            marks=pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no such directory"),
        ),
    ],
)
def test_a_directory_that_cannot_be_written_to_is_refused_beforehand(tmp_path: Path, directory: str, why: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=f"^--report: .*{why}"):
        taken = {"output.path": str(tmp_path / "out"), "output.1.path": str(tmp_path / "rounds")}
        check_directory(tmp_path / directory, taken)


def test_looking_whether_a_directory_can_be_written_to_leaves_nothing_and_a_page_that_fails_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_directory(tmp_path / "new" / "report", {"output.path": str(tmp_path / "new" / "out")})
    check_directory(tmp_path, {})
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("dpa.report._files.page_of", lambda view: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(samples.report(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "resolved.yaml"]


def test_events_of_a_failed_job_lie_beside_the_report_and_those_of_an_earlier_one_are_removed(tmp_path: Path) -> None:
    failed = samples.empty_report(status="failed", error="oops")
    write(failed, tmp_path, {"reducer-0.events": b"old", "reducer-1.events": b"old"})
    files = write(failed, tmp_path, {"reducer-0.events": b"new"})
    assert [path.name for path in files] == ["report.json", "resolved.yaml", "events", "report.html"]
    assert {path.name: path.read_bytes() for path in files[2].iterdir()} == {"reducer-0.events": b"new"}
    write(samples.report(), tmp_path)
    assert not (tmp_path / "events").exists()


def test_events_are_for_their_owner_alone(tmp_path: Path) -> None:
    write(samples.empty_report(), tmp_path, {"reducer-0.events": b"x"})
    assert (tmp_path / "events" / "reducer-0.events").stat().st_mode & 0o777 == 0o600
