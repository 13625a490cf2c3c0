"""Install the built wheel into an empty environment of each supported Python that is here, and use it as users do.

Its extras are left out, and so is everything that only tests need: what a job needs must come with `pip install dpa`.
Versions are those of the lock. On the Python that runs this a job is made and run; on the others one is checked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from other_pythons import found, supported

ROOT = Path(__file__).parents[1]
OWN = "{}.{}".format(*sys.version_info)
LOCK = ROOT / "requirements.lock"


def install(python: str, wheel: Path, environment: Path, wheels: Path) -> Path:
    """Make an environment with the wheel in it; `wheels` has those of what comes as source. Return its programs."""
    uv, programs = Path(sys.executable).with_name("uv"), environment / "bin"
    run(environment.parent, [python, "-m", "venv", *(["--without-pip"] if uv.exists() else []), environment])
    installs = [uv, "pip", "install", "--quiet", "--python", programs / "python"]
    if not uv.exists():
        installs = [programs / "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(environment.parent, [*installs, "--constraint", LOCK, "--find-links", wheels, wheel])
    return programs


def use(programs: Path, directory: Path, *, is_run: bool) -> None:
    """Begin a job, check it and, if wanted, run it."""
    dpa, job = programs / "dpa", directory / "job"
    run(directory, [dpa, "version"])
    run(directory, [dpa, "init", "job"])
    assert "dpa-alerts.yml" in run(directory, [dpa, "init", "--monitoring", "monitoring"])
    run(job, [dpa, "check", "job.yaml"])
    refused = run(job, [dpa, "check", "job.yaml", "--set", "stages.totals.grouping=partial_key"], status=2)
    assert "`partial_key` needs numba: pip install 'dpa[groupings]'" in refused, refused
    if is_run:
        assert "reference: match" in run(job, [dpa, "run", "job.yaml", "--report", "report"])
        assert '"status": "ok"' in (job / "report" / "report.html").read_text("utf-8")


def run(directory: Path, command: list[object], *, status: int = 0) -> str:
    """What a command prints, in a directory far from the sources and without what names them."""
    around = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=directory, env=around, text=True, capture_output=True, timeout=300, check=False
    )
    said = done.stdout + done.stderr
    if done.returncode != status:
        sys.exit(f"{command} has status {done.returncode}, not {status}:\n{said}")
    return said


def main() -> None:
    """Use the wheel in `dist` on each Python."""
    [wheel] = (ROOT / "dist").glob("*.whl")
    with tempfile.TemporaryDirectory() as shared:
        # Where the index does not say how long an answer is good, uv fetches and builds anew each time, and keeps all
        # of it: 2 GB for each build of PySpark. So that is built once here, and what uv keeps goes when this ends.
        os.environ["UV_CACHE_DIR"] = str(Path(shared, "uv"))
        wheels = Path(shared, "wheels")
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        run(ROOT, [*build, "--constraint", LOCK, "--wheel-dir", wheels, "pyspark"])
        for version in supported():
            python = sys.executable if version == OWN else found(version)
            if python is not None:
                with tempfile.TemporaryDirectory(dir=shared) as directory:
                    programs = install(python, wheel, Path(directory, "environment"), wheels)
                    use(programs, Path(directory), is_run=version == OWN)
                print(f"the wheel works on Python {version}", flush=True)


if __name__ == "__main__":
    main()
