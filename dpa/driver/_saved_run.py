"""The checkpoints of a run, as its driver sees them: those of a new job, or of one that it resumes. What the two must
have in common is in every checkpoint, in words that can be compared and shown."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpa._secrets import without_secrets
from dpa._util.as_yaml import as_yaml
from dpa._util.owned import users_directory
from dpa._util.words import plural, shortened
from dpa.config import OutputConfig
from dpa.driver._joins import Sides
from dpa.driver.inputs import OpenedInput
from dpa.driver.outputs import Publication
from dpa.driver.spec import JobSpec
from dpa.errors import CheckpointError, ConfigError
from dpa.logical.step import Step
from dpa.protocol.recovery import CheckpointOptions, SavedJob
from dpa.sources.ipc import IpcSplit
from dpa.sources.paths import locate, resolved
from dpa.sources.splits import ParquetSplit, RecordsSplit
from dpa.sources.united import UnitedSplit
from dpa.spark import Kept

if TYPE_CHECKING:
    from dpa.checkpoints import Chain, Manifest

_log = logging.getLogger(__name__)

_FREE = {  # keys of a step that may be others when a job is resumed
    *("parallelism", "grouping", "balance", "limits", "write", "combiner", "elastic", "testing"),
    *("reference", "resources"),
}

_OF_JOB = {"seed": "seed", "tolerated": "on_error"}
"""What of a step is a key of the job."""

_STAGED = "dpa-kept-"  # how the directories begin in which staged input is kept where checkpoints are in object storage


class SavedRun:
    """A context in which a run has a place for checkpoints. They go when the job has ended well, or where there are
    none; else they stay.

    Attributes:
        saved: what the tasks' runtime is to know of it; complete once the inputs are known.
        resumes: whether a job is resumed.
        sides: the rows that every task of the resumed job had; None: the job is new.
        resumable: after the block, the checkpoints of a job that can be resumed; None: it cannot, or another driver
            continues it.
        lives: how often the job has been begun again by this driver.
    """

    def __init__(self, spec: JobSpec, options: CheckpointOptions, resume: str | None) -> None:
        """Of a job with such checkpoints; `resume`: where those are of the one that it resumes. ConfigError if there
        can be none."""
        from dpa.checkpoints import CheckpointStore

        self.resumes = resume is not None
        self.resumable: str | None = None
        self.lives = 0
        self._spec = spec
        path, self._job = (options.path, None) if resume is None else CheckpointStore.with_job(resume)
        with self._refusing():
            self._store = CheckpointStore.open(path)
        if self._store.room("") is not None:  # a directory, and no object storage
            path = self._store.place  # whatever user code makes the working directory
        self.saved = SavedJob(replace(options, path=path), "")
        self._inputs: Mapping[str, Any] = {}
        self.sides: Sides | None = None
        self._checkpoint: Manifest | None = None
        self._working = str(Path.cwd())
        self._is_done = False

    def __enter__(self) -> SavedRun:
        """Make a place for a new job, or find the one to resume; ConfigError if that cannot be."""
        if self.resumes:
            if not self.saved.job:
                self.find()
            return self
        self._about = _about_steps(self._spec)
        with self._refusing():
            self.saved = replace(self.saved, job=self._store.create(self._spec.config.name).job)
        return self

    def find(self) -> SavedJob:
        """The job to resume; ConfigError if this one can continue none."""
        self._about = _about_steps(self._spec)
        with self._refusing():
            self.saved = self._found()
        return self.saved

    def __exit__(self, *raised: object) -> None:
        try:
            chain = self._store.chain(self.saved.job)
            if self._is_done or chain.newest() is None:
                self._remove(chain)
                return
            # the slot of a generation's claim has the number of the next
            if chain.newest_slot().generation > self.saved.generation + self.lives + 1:
                _log.warning("another driver has resumed this job from its checkpoints: do not resume it here")
                return
        except CheckpointError as error:
            _log.warning("the checkpoints of the job are still there: %s", error)
        self.resumable = self._place

    def require_known(self, outputs: Iterable[Publication]) -> None:
        """ConfigError if what the resumed job has published does not go with its newest checkpoint."""
        from dpa.protocol.published import remedy, require_known

        assert self._checkpoint is not None
        for output in outputs:
            newest = output.newest()
            if newest is not None and newest.is_last and any(known["rows"] is None for known in self._inputs.values()):
                back = "begin a new job, which writes elsewhere"
                if output.sink.with_checkpoints:
                    back = remedy(self._checkpoint, self._store.place, self.saved.job)
                ended = f"{output.place} has all that this job has published: it had ended, and what it reads now"
                raise ConfigError(f"--resume: {ended} would be lost; {back}")
            if output.sink.with_checkpoints:
                with self._refusing():
                    require_known(newest, output.place, self._checkpoint, self._store.place, self.saved.job)

    def done(self) -> None:
        self._is_done = True

    def kept(self, step: str) -> Kept:
        room = self._store.room(self.saved.job) or self._far_room
        return Kept(f"{room}/{step}", self.resumes)

    def know(self, opened: Mapping[str, OpenedInput], publishes: Sequence[str], sides: Sides) -> SavedJob:
        """What is saved, now that the inputs are known; ConfigError if a resumed job had others. `publishes`: the keys
        of sections whose epochs are committed with checkpoints; `sides`: the rows that every task has."""
        inputs = {name: _about_input(found) for name, found in opened.items()}
        for name, then in self._inputs.items():
            if then != inputs[name]:
                step = next(step for step in self._spec.sources if step.name == name)
                found, had = _input_in_words(inputs[name]), _input_in_words(then)
                other = f"has {found} now, and had {had}" if found != had else "has files of other names or sizes now"
                raise self._spec.file.error(step.at("read"), f"{other}; a job is resumed with the input that it had")
        config, directory = self._spec.config, str(self._spec.file.directory)
        job = as_yaml({"directory": directory, "job": config.resolved()}) if publishes else ""
        where = {"publishes": publishes, "job": job, "working": self._working}
        about = json.dumps({"steps": self._about, "inputs": inputs, "sides": sides, **where})
        self.saved = replace(self.saved, about=about)
        return self.saved

    @property
    def _place(self) -> str:
        """Of the job's checkpoints, as `--resume` takes it."""
        path, mark, options = self.saved.options.path.partition("?")
        return f"{path.rstrip('/')}/{self.saved.job}{mark}{options}"

    @property
    def _far_room(self) -> str:
        """Where staged input is kept if checkpoints are in object storage."""
        return f"{resolved(self._spec.config.spark.stage_dir or str(users_directory()), '.')}/{_STAGED}{self.saved.job}"

    def _remove(self, chain: Chain) -> None:
        chain.remove()
        if self._store.room(self.saved.job) is None:
            locate(self._far_room).remove_directory()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except CheckpointError as error:
            if self.resumes:
                raise ConfigError(f"--resume: {error}") from None
            raise self._spec.file.error("checkpoint.path", str(error)) from None

    def _found(self) -> SavedJob:
        """The job in the store that this one can continue. CheckpointError if none or several can be read; ConfigError
        if the only one has other steps."""
        name, place = self._spec.config.name, self._store.place
        jobs = [self._job] if self._job else [each for each in self._store.jobs() if each[:-33] == name[:80]]
        found, refused = [], []
        for each in jobs:
            try:
                found.append(self._readable(each))
            except (CheckpointError, ConfigError) as error:
                refused.append(error)
        if len(found) == 1:
            saved, then, self._checkpoint = found[0]
            self._inputs, self.sides = then["inputs"], then.get("sides", {})
            return saved
        if found:
            several = ", ".join(saved.job for saved, _, _ in found)
            raise CheckpointError(
                f"{place} has checkpoints of several jobs that fit: name one of {several} in --resume"
            )
        if len(refused) == 1:
            raise refused[0]
        there = ", ".join(self._store.jobs()) or "none"
        why = "".join(f"\n{error}" for error in refused)
        raise CheckpointError(f"{place} has no checkpoint with which {name} can go on; jobs there: {there}{why}")

    def _readable(self, job: str) -> tuple[SavedJob, Any, Manifest]:
        """A job that this one can continue, what that says of it, and its newest checkpoint. CheckpointError if
        that cannot be read; ConfigError if its steps are others."""
        from dpa.protocol.checkpoint_format import below_head

        chain = self._store.chain(job)
        newest = chain.newest_slot()
        if newest.checkpoint is None:
            raise CheckpointError(f"{self._store.place}/{job} has no checkpoint yet: run the job without --resume")
        then = below_head(chain.data, newest.checkpoint)[0]
        self._require_same(then["steps"])
        rows = newest.checkpoint.records
        saved = SavedJob(self.saved.options, job, generation=newest.generation, read=rows)
        return saved, then, newest.checkpoint

    def _require_same(self, then: Mapping[str, Mapping[str, Any]]) -> None:
        """ConfigError if a step is not as it was when the checkpoint was made."""
        file, now = self._spec.file, self._about
        if now.keys() != then.keys():
            have = f"the job has the steps {', '.join(now)}, and the checkpoint {', '.join(then)}"
            raise file.error("stages", f"{have}; a job is resumed with the steps that it had")
        for step in self._spec.steps:
            here = now[step.name]
            given = step.config.model_dump(by_alias=True, exclude=_FREE, exclude_defaults=True)
            before = _with_new_keys(then[step.name], here, given)
            for key in (*here, *(before.keys() - here.keys())):
                if here.get(key) != before.get(key):
                    inner, *values = _difference(before.get(key), here.get(key))
                    was, is_ = (shortened(json.dumps(value)) for value in values)
                    changed = f"is {is_}, and was {was} when the checkpoint was made"
                    at = ".".join((_OF_JOB.get(key) or step.at(key), *inner))
                    raise file.error(at, f"{changed}; a job is resumed with what it had (docs/recovery.md)")


def _about_steps(spec: JobSpec) -> dict[str, Any]:
    """Of each step, what must be as it was when a job is resumed."""
    plain = {step.name: without_secrets(dict(_about_step(spec, step))) for step in spec.steps}
    known: dict[str, Any] = json.loads(json.dumps(plain, default=str))
    return known


def _about_step(spec: JobSpec, step: Step) -> Iterator[tuple[str, Any]]:
    yield from step.config.model_dump(by_alias=True, exclude=_FREE).items()
    if step.is_source:
        yield "seed", spec.config.seed
        yield "tolerated", spec.config.on_error  # positions in an open input have the numbers of splits then
    elif spec.config.mapper is not None:
        yield "mapper", spec.config.mapper.model_dump()
    paced = step.config.read is not None and step.config.read.rate is not None
    yield "parallelism", step.tasks if paced else "tasks of its own" if step.is_stage else "in the tasks before it"
    yield "balance.hash_seed", step.balance.hash_seed
    yield "write", "a result" if step.is_result else "no result"
    known = [_about_output(output) for output in step.config.outputs.values()]
    if any(known):
        yield "write.publish", known[0] if len(known) == 1 else known
    by_rows = [publishes in ("final", "changes") for publishes in step.publishes]
    if any(by_rows) and not all(by_rows):  # then tasks keep what others have published for good
        yield "write", "a result, whole"


def _about_output(output: OutputConfig) -> dict[str, Any]:
    if output.publish is None:
        return {}
    return {"mode": output.publish.mode, **output.model_dump(include={"path", "format", "use"}, exclude_none=True)}


def _about_input(opened: OpenedInput) -> dict[str, Any]:
    splits = (split.split if isinstance(split, UnitedSplit) else split for split in opened.splits)
    parts = [part for split in splits for part in (split, *getattr(split, "more", ()))]
    files = {(part.path, part.size) for part in parts if isinstance(part, ParquetSplit | IpcSplit | RecordsSplit)}
    digest = hashlib.sha256(repr(sorted(files)).encode()).hexdigest()
    columns = "" if opened.schema is None else ", ".join(f"{field.name}: {field.type}" for field in opened.schema)
    return {"columns": columns, "rows": opened.rows, "files": len(files), "digest": digest}


def _input_in_words(known: Mapping[str, Any]) -> str:
    if known["rows"] is None:
        return f"an open input with the columns {known['columns']}"
    in_files = f" in {plural(known['files'], 'file')}" if known["files"] else ""
    return f"{plural(known['rows'], 'row')}{in_files} with the columns {known['columns'] or 'of an empty list'}"


def _with_new_keys(then: Mapping[str, Any], now: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A section as it was, with keys that its version of dpa did not have: they have their defaults, which `given`
    leaves out."""
    found = {key: now[key] for key in now.keys() - then.keys() - given.keys()}
    for key, was in then.items():
        here, own = now.get(key), given.get(key, {})
        if isinstance(was, dict) and isinstance(here, dict) and isinstance(own, dict):
            found[key] = _with_new_keys(was, here, own)
        else:
            found[key] = was
    return found


def _difference(was: Any, is_: Any) -> tuple[tuple[str, ...], Any, Any]:
    """The path of the first difference between two sections, and both values there."""
    if not (isinstance(was, dict) and isinstance(is_, dict)):
        return (), was, is_
    key = next(key for key in (*is_, *was) if was.get(key) != is_.get(key))
    inner, *both = _difference(was.get(key), is_.get(key))
    return (key, *inner), *both
