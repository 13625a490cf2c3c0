"""Reading a job file: overrides, placeholders, and errors that name file, line and key.

`load(path, overrides)` returns a `JobFile` or raises `ConfigError` with one line for each problem. Nothing is imported,
opened or started here: see `dpa.job` for that.
"""

import os
import re
import sysconfig
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from dpa._secrets import learn
from dpa._util.words import plural, shortened, suggestion
from dpa.aggregates import READY_MADE
from dpa.config._errors import explained, short_for
from dpa.config._schema import OF_MAP_REDUCE, JobConfig
from dpa.config._stage import StageConfig
from dpa.config._yaml import OPTION, KeyPath, Places, error_at, parsed, written_at
from dpa.config.stages import StepConfig
from dpa.config.variants import VARIANTS, choice
from dpa.errors import ConfigError, DpaError
from dpa.protocol.graph import MAPPER, REDUCER

_MOST_BYTES = 16 * 2**20  # of a job file


@dataclass(frozen=True)
class JobFile:
    """A job's configuration and where it was written, for error messages.

    Attributes:
        origin: the job file's path, or a name for a job built in Python.
        places: where each key path was written: `file:line`, or the `--set` option that overrode it.
        set_aside: a line for each key of the file that does not count, as an option has chosen another strategy or
            grouping than the one it belongs to.
    """

    config: JobConfig
    origin: str = "job"
    places: Places = field(default_factory=dict)
    set_aside: tuple[str, ...] = ()

    @property
    def directory(self) -> Path:
        """Where relative paths start: the job file's directory, or the working directory."""
        return Path(self.origin).resolve().parent if self.places else Path.cwd()

    @cached_property
    def stages(self) -> Mapping[str, StepConfig]:
        """By name, each of one operation. ConfigError if there is none, or a job of one mapper and one reducer lacks
        its input or its reducer."""
        if self.config.stages:
            steps = self.config.stages.items()
            return {part: config for name, step in steps for part, config in step.parts(name).items()}
        if "stages" in self.config.model_fields_set:
            raise self.error("stages", "there is no step: a graph has one that reads, and others that take its rows")
        if self.config.input is None:
            raise self.error("input", "a job needs an input")
        if self.config.reducer is None:
            known = ", ".join(READY_MADE)
            raise self.error("reducer", f"a job needs a reducer: `package.module:Name`, or one of {known}")
        return as_steps(self.config)

    def at(self, step: str, key: str) -> str:
        """The path of a step's key, as the job file writes it."""
        return f"stages.{step.partition('.')[0]}.{key}" if self.config.stages else written_as(key)

    def error(self, key: str, message: str) -> ConfigError:
        return error_at(key.split("."), message, self.origin, self.places)

    @contextmanager
    def blaming(self, key: str, *kinds: type[Exception]) -> Iterator[None]:
        """A block in which an error of these kinds is one in what stands at a key."""
        try:
            yield
        except kinds as error:
            raise self.error(key, str(error)) from None

    def placed(self, error: DpaError) -> ConfigError:
        """The error of a key of the job file, with the place where that was written."""
        return ConfigError(str(error)) if error.key is None else self.error(error.key, error.message)


def load(path: str | Path, overrides: Sequence[str] = ()) -> JobFile:
    """Read a job file and apply `a.b=value` overrides, whose values are YAML. ConfigError if it cannot be read, is not
    YAML, or does not fit the schema."""
    path = Path(path)
    document, lines = _read(path)
    places: dict[KeyPath, str] = {key: f"{path}:{line}" for key, line in lines.items()}
    for given in overrides:
        override(document, places, given)
    notes = set_aside(document, places)
    return replace(parse(document, origin=str(path), places=places), set_aside=tuple(notes))


def parse(document: Mapping[str, Any], *, origin: str = "job", places: Places | None = None) -> JobFile:
    """Check a job given as a mapping; ConfigError has a line for each problem, with its place by `origin` and
    `places`."""
    places = places or {}
    for key in document if document.get("stages") else ():
        if key in OF_MAP_REDUCE:
            instead = f"beside `stages` write `stages.STEP.{IN_STAGES.get(key, key)}`"
            why = f"belongs to a job of one mapper and one reducer; {instead}"
            raise error_at([key], why, origin, places)
    given = substitute(dict(document), origin)
    learn(given)
    learn(os.environ)
    try:
        config = JobConfig.model_validate(given)
    except ValidationError as error:
        raise ConfigError("\n".join(explained(error.errors(), document, origin, places))) from None
    return JobFile(config, origin, places)


def parse_written(text: str) -> JobFile:
    """The job as a run has written it, with the directory where paths start; ConfigError if this version does not know
    it."""
    found = yaml.safe_load(text)
    origin = str(Path(found["directory"]) / "job.yaml")
    return parse(found["job"], origin=origin, places={("name",): origin})


def _read(path: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content[:_MOST_BYTES].decode("utf-8")
    except FileNotFoundError:
        from dpa._util.arguments import job_files  # it imports typer

        near = {Path(each).stem: each for folder in (path.parent, ".") for each in job_files(f"{folder}/")}
        near = {name: each for name, each in near.items() if Path(each).exists()}  # links may lead nowhere
        hint = "".join(f"; did you mean {near[name]}?" for name in get_close_matches(path.stem, near, n=1))
        raise ConfigError(f"{path}: cannot read the job file: it is not in {path.parent.absolute()}{hint}") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        known = {IsADirectoryError: "it is a directory: name a file in it", UnicodeDecodeError: "it is not UTF-8 text"}
        raise ConfigError(f"{path}: cannot read the job file: {known.get(type(error), error)}") from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path}: a job file has at most {_MOST_BYTES // 2**20} MiB; put records in a file of data")
    document, lines = parsed(text, str(path))
    document = {} if document is None else document
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: a job file is a mapping of keys, not {type(document).__name__}")
    return document, lines


_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def substitute(value: Any, origin: str) -> Any:
    """A document with its placeholders replaced, at any depth. ConfigError, naming `origin`, if one is unknown or not
    set."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _replacement(match.group(1), origin), value)
    if isinstance(value, dict):
        return {key: substitute(item, origin) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, origin) for item in value]
    return value


def _replacement(name: str, origin: str) -> str:
    if name == "python.stdlib":
        return sysconfig.get_paths()["stdlib"]
    if name.startswith("env."):
        variable = name.removeprefix("env.")
        if variable not in os.environ:
            raise ConfigError(f"{origin}: ${{{name}}}: the environment variable {variable} is not set")
        return os.environ[variable]
    raise ConfigError(f"{origin}: ${{{name}}} is unknown; use ${{python.stdlib}} or ${{env.NAME}}")


IN_STAGES = {"input": "read", "mapper": "flat_map", "reducer": "reduce", "key": "key_by", "output": "write"}
"""What its keys are called in steps, where that is another name."""

_AT_TOP = {"from": "input", **{name: key for key, name in IN_STAGES.items()}}


def as_steps(job: JobConfig) -> dict[str, StepConfig]:
    assert job.reducer is not None
    same = {field.alias or name: getattr(job, name) for name, field in StageConfig.model_fields.items()}
    read = {
        "read": job.input,
        "sample": same.pop("sample"),
        "parallelism": job.parallelism.mappers,
        "resources": job.resources.mappers,
    }
    reduced = {
        **job.reducer.as_step,
        "from": [MAPPER],
        "key_by": job.key,
        "parallelism": job.parallelism.reducers,
        "resources": job.resources.reducers,
        "grouping": job.grouping,
        "balance": job.balance,
        "write": None if all(output.is_memory for output in job.output) else job.output,
        **same,
    }
    return {MAPPER: StepConfig.model_validate(read), REDUCER: StepConfig.model_validate(reduced)}


def written_as(key: str) -> str:
    """The key path at which such a job has a key of a step."""
    first, dot, rest = key.partition(".")
    if first == "agg":
        return f"reducer.{key}"
    return _AT_TOP.get(first, first) + dot + rest


_PART = r'(?:"[^"]+"|[^".=]+)'
_OPTION = re.compile(rf"({_PART}(?:\.{_PART})*)=(.*)", re.DOTALL)
"""A key path, in which a part with dots or `=` of its own stands between quotes, and a value."""


def override(document: dict[str, Any], places: MutableMapping[KeyPath, str], given: str) -> None:
    """Set a key of the document, and note the option as its place. ConfigError if `given` is not `section.key=value`,
    or names no section, or an unknown step."""
    option = OPTION + shortened(given)
    match = _OPTION.fullmatch(given)
    if match is None:
        dotted = """quote a part that contains a dot: 'spark.conf."spark.driver.memory"=4g'"""
        raise ConfigError(f"{option}: write it as section.key=value, such as balance.strategy=none; {dotted}")
    parts = [part.strip().strip('"') for part in re.findall(_PART, match[1])]
    value, _ = parsed(match[2], option)
    stages = document.get("stages")
    if parts[0] == "output" and isinstance(stages, dict) and stages:
        parts = ["stages", _only_result(stages, option), "write", *parts[1:]]
    _require_step(stages, parts, option)
    target: Any = document
    for depth, part in enumerate(parts[:-1], start=1):
        stands_for = short_for(parts[:depth])
        if isinstance(target.get(part), str) and stands_for is not None:
            target[part] = {stands_for: target[part]}
        if target.get(part) is None:
            target[part] = {}
            places[tuple(parts[:depth])] = option
        target = target[part]
        if not isinstance(target, dict):
            raise ConfigError(f"{option}: {part!r} is not a section")
    target[parts[-1]] = value
    replaced = tuple(parts)  # with all below it: places of what the file had there would mislead
    for below in [path for path in places if path[: len(replaced)] == replaced]:
        del places[below]
    places[replaced] = option


def _only_result(stages: Mapping[str, Any], option: str) -> str:
    """The only step that is a result, which an option that says where output goes refers to; ConfigError if there are
    several."""
    steps = {name: step for name, step in stages.items() if isinstance(step, dict)}
    named = [step.get("from") for step in steps.values()]
    named += [step["join"].get("with") for step in steps.values() if isinstance(step.get("join"), dict)]
    taken = [name for given in named for name in (given if isinstance(given, list) else [given])]
    found = [name for name, step in steps.items() if {"write", "reference"} & set(step) or name not in taken]
    if len(found) == 1:
        return found[0]
    ways = " or ".join(f"stages.{name}.write.path" for name in found or ["STEP"])
    raise ConfigError(f"{option}: the job has {plural(len(found), 'result')}: set {ways}")


def _require_step(stages: Any, parts: Sequence[str], option: str) -> None:
    """ConfigError if an option names a key of a step that there is not."""
    if parts[0] == "stages" and len(parts) > 2 and isinstance(stages, dict) and parts[1] not in stages:
        there = [*map(str, stages)]
        hint = suggestion(parts[1], there, f"there are {', '.join(there)}")
        raise ConfigError(f"{option}: there is no step {parts[1]!r}; {hint}")


def set_aside(document: dict[str, Any], places: Places) -> list[str]:
    """Take out keys of the file that belong to another strategy or grouping than an option has chosen, and return a
    line for each: where it was written, and why it does not count. Keys of options stay and are refused later, as are
    keys that no variant has."""
    stages = document.get("stages")
    notes = _set_aside(document, (), places)
    for name, step in stages.items() if isinstance(stages, dict) else ():
        notes += _set_aside(step, ("stages", name), places) if isinstance(step, dict) else []
    return notes


def _set_aside(stage: dict[str, Any], path: KeyPath, places: Places) -> list[str]:
    notes = []
    for name, variants in VARIANTS.items():
        section, chosen = stage.get(name), choice(stage, variants)
        option = None if chosen.path is None else written_at(places, (*path, *chosen.path))
        known = isinstance(chosen.variant, str) and chosen.variant in variants.classes
        if not known or not isinstance(section, dict) or option is None or not option.startswith(OPTION):
            continue
        for key in [key for key in section if key not in variants.keys_of(chosen.variant)]:
            here = (*path, name, key)
            place = written_at(places, here) or ""
            if variants.that_have(key) and not place.startswith(OPTION):
                del section[key]
                why = f"set aside, as {option}: `{chosen.variant}` has no such key"
                notes.append(f"{place}: {'.'.join(map(str, here))}: {why}")
    return notes
