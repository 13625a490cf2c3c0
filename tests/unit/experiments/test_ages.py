"""A result's age is what git says of the code that it measures, and none is older than agreed without a reason."""

import subprocess
from pathlib import Path

import pytest

from experiments.report.ages import MAX_CHANGED, ROOT, Age, History, HistoryError, ages_of, measured_code
from experiments.report.findings import Finding, Findings, load_findings
from experiments.report.results import load_results

WHOLE = History()


class Repository:
    """A repository in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, **files: str | None) -> str:
        """Write these files, whose names have `__` for `/`, remove those without text; returns the commit."""
        for name, text in files.items():
            path = self.root / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if text is None else path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


LINES = "".join(f"line {number}\n" for number in range(20))


def test_the_age_counts_commits_and_lines_of_the_measured_code_alone(repository: Repository) -> None:
    commit = repository.commit(code__a=LINES, code__b="b\n", other=LINES)
    repository.commit(code__a=LINES.replace("line 3\n", "line three\n"), other="all is new\n")
    history = History(repository.root)
    age = history.age(commit, ["code"])
    assert (age.commits, age.changed, age.lines) == (1, 2, 21), "one line removed and one added, of 21"
    assert history.age(commit, ["code/b.py"]).changed == 0
    assert history.age(history.commit, ["code"]).commits == 0
    repository.commit(experiments__results__a="1\n", docs__page="text\n")  # results and documents do not count
    (repository.root / "experiments" / "results" / "b.json").write_text("{}")
    later = History(repository.root)
    assert later.age(commit, ["code"]).commits == 1
    assert (later.is_whole, later.has_changes) == (True, False)


def test_what_is_not_committed_counts_and_a_file_that_was_moved_counts_by_its_changes(repository: Repository) -> None:
    commit = repository.commit(code__a=LINES)
    repository.git("mv", "code/a.py", "code/b.py")
    repository.commit(code__b=LINES + "one more\n")
    assert History(repository.root).age(commit, ["code"]).changed == 1
    (repository.root / "code" / "b.py").write_text(LINES)
    history = History(repository.root)
    assert history.has_changes
    assert history.age(commit, ["code"]).changed == 0
    (repository.root / "code" / "b.py").unlink()
    assert History(repository.root).age(commit, ["code"]).changed == 20


def test_a_commit_that_is_not_there_and_a_history_that_is_not_whole_are_known(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> None:
    repository.commit(a="1\n")
    repository.commit(a="2\n")
    with pytest.raises(HistoryError, match=r"git diff: .*0000"):
        History(repository.root).age("0" * 40, ["a.py"])
    shallow = tmp_path_factory.mktemp("shallow")
    repository.git("clone", "--quiet", "--depth", "1", f"file://{repository.root}", str(shallow))
    assert not History(shallow).is_whole
    assert not History(tmp_path_factory.mktemp("none")).is_whole


def test_a_result_measures_what_its_finding_names_and_is_stale_once_too_much_of_that_has_changed() -> None:
    most = int(MAX_CHANGED * 1_000)
    assert not Age("2026-01-31", 1, most, 1_000).is_stale
    assert Age("2026-01-31", 1, most + 1, 1_000).is_stale
    finding = Finding("cg_4", "", "", "", measures=("routing", "dpa/errors.py"))
    findings = Findings((), (), {"routing": ("dpa/routing", "dpa/routing.py")})
    found = measured_code(finding, findings, "python -m experiments.cg --figure 4")
    assert found == ("experiments/cg", "dpa/routing", "dpa/routing.py", "dpa/errors.py")
    assert measured_code(finding, findings, "python -m experiments.scale")[0] == "experiments/scale.py"


RESULTS, FINDINGS = load_results(), load_findings()


@pytest.mark.parametrize("finding", FINDINGS.all, ids=lambda finding: finding.result)
def test_the_code_that_a_result_measures_exists(finding: Finding) -> None:
    assert finding.measures
    paths = measured_code(finding, FINDINGS, RESULTS[finding.result].stamp["command"])
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.skipif(not WHOLE.is_whole, reason="git has not the whole history here")
def test_no_result_is_older_than_agreed_but_those_that_say_why() -> None:
    ages = ages_of(RESULTS, FINDINGS, WHOLE)
    stale = {name for name, age in ages.items() if age is None or age.is_stale}
    excused = {finding.result for finding in FINDINGS.all if finding.stale}
    new = sorted(stale - excused)
    assert not new, f"measure again by `python -m experiments.all {' '.join(new)}`, or say in findings.yaml why not yet"
    assert excused <= stale, "they are fresh now: remove `stale` from findings.yaml"
