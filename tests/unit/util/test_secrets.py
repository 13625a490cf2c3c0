"""Secrets in texts and configurations: what is hidden, by its name, by where it stands, and by its value."""

import pytest

from dpa import _secrets as secrets
from dpa._secrets import hidden, know, known, learn, without_secrets
from dpa._util.streams import say
from dpa.errors import ConfigError


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_KNOWN", secrets._Known())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jdbc:x://h/d?user=u&password=p&ssl=1", "jdbc:x://h/d?user=u&password=***&ssl=1"),
        ("jdbc:oracle:thin:scott/tiger@//h:1521/x", "jdbc:oracle:thin:scott/***@//h:1521/x"),
        ("jdbc:sqlserver://h;user=a;password=b;x=1", "jdbc:sqlserver://h;user=a;password=***;x=1"),
        ("jdbc:mysql://u:p/w@h/db", "jdbc:mysql://u:***@h/db"),
        ("reading s3://id:p@h/x: denied", "reading s3://id:***@h/x: denied"),
        ("https://h:80/x?sv=1&sig=abc&se=1", "https://h:80/x?sv=1&sig=***&se=1"),
        ("{'password': 'a b', 'x': 1}", "{'password': ***, 'x': 1}"),
        ('{"api_key": "abc"}', '{"api_key": ***}'),
        ("--set input.options.password=hunter", "--set input.options.password=***"),
        ("in line 3:\n    password: 'two words\n      x", "in line 3:\n    password: ***\n      x"),
        *(
            (text, text)
            for text in (
                "job.yaml:3: input.options.password: Input should be a valid string",
                "http://h:8080/a and host:8080/a@b",
                "s3://bucket/path@2",
                "balance.initial_tokens=64, tokenizer=plain, key=word",
                "reset_password(x) of a password that is wrong",
                "visits.py:12: KeyError",
            )
        ),
    ],
)
def test_a_secret_is_known_by_what_stands_before_it(text: str, shown: str) -> None:
    assert hidden(text) == shown


def test_what_a_configuration_has_as_a_secret_is_hidden_wherever_it_stands_and_however_it_is_written() -> None:
    learn(
        {
            "options": {"password": "p@ss/w0rd", "url": "jdbc:x://h;password=two words;a=1"},
            "path": ["s3://AK:se%2Fcret12345@bucket/x"],
            "args": {"authToken": 1234567, "api_key": {"id": "Zebra-77"}, "private_key": "-BEGIN-\nline 1 of it\n"},
        }
    )
    for written in ("p@ss/w0rd", "p%40ss%2Fw0rd", "two words", "se/cret12345", "se%2Fcret12345", "1234567", "Zebra-77"):
        assert hidden(f"it failed at {written}, twice") == "it failed at ***, twice"
    assert hidden("line 1 of it") == hidden(r"-BEGIN-\nline 1 of it\n") == "***"
    assert without_secrets({"note": ["uses p@ss/w0rd"]}) == {"note": ["uses ***"]}


def test_a_short_secret_is_hidden_as_a_word_of_its_own_and_a_very_short_one_by_its_name_alone() -> None:
    learn({"password": "tables", "token": "abc", "DISABLE_SECRET_SCAN": "enabled", "PWD": "/home/ann/jobs"})
    learn({"DB_PWD": "correct horse"})
    assert hidden("tables, timetables, abc, enabled; token=abc") == "***, timetables, abc, enabled; token=***"
    assert hidden("/home/ann/jobs: correct horse") == "/home/ann/jobs: ***", "a shell's working directory is none"


def test_what_one_process_knows_another_one_can_learn() -> None:
    learn({"password": "correct horse"})
    there = known()
    secrets._KNOWN.secrets.clear()
    know(there)
    assert hidden("correct horse") == "***"


def test_errors_and_what_is_said_have_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    learn({"password": "correct horse"})
    say("it was correct horse")
    assert capsys.readouterr().err == "it was ***\n"
    assert str(ConfigError("it was correct horse, or password=x")) == "it was ***, or password=***"
