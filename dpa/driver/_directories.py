"""Directories that a job reads, works in or takes its code from: what it writes must replace none of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import gettempdir

from dpa._util.disk import is_there, without_links
from dpa.config import JobFile
from dpa.config.inputs import InputConfig
from dpa.sources.paths import local_directories, local_path, one_or_more, prefix_of


def check_place(file: JobFile, key: str, path: Path, ending: str = ".parquet") -> None:
    """ConfigError if a directory which a job will fill with files of an ending, named at `key`, is or holds one that
    the job needs. Links are followed, and a directory is known under each of its names."""
    for what, directory in _needed(file):
        if holds(path, directory):
            relation = "is" if holds(directory, path) else "holds"
            raise file.error(key, f"{path} {relation} {what}, {directory}; name a directory for the result alone")
    for given in _inputs(file):
        if not given.recursive or not (given.glob is None or fnmatchcase(f"part-00000{ending}", given.glob)):
            continue
        for root in (root for each in one_or_more(given.path) for root in local_directories(each, str(file.directory))):
            if holds(root, path):
                why = "which is read with all its sub-directories: the next run would read what this one writes"
                raise file.error(key, f"{path} lies in the input {root}, {why}; name a directory outside of it")


def check_prefix(file: JobFile, key: str, uri: str) -> None:
    """ConfigError if a prefix of object storage which a job will fill and one that it reads overlap."""
    for path in _paths(file):
        if "://" in path and in_common(uri, path):
            read = f"{prefix_of(uri)} and the input {prefix_of(path)} lie one in the other"
            raise file.error(key, f"{read}; name a prefix for the result alone")


def in_common(one: str, other: str) -> bool:
    """Whether two URIs are of one prefix, or one lies in the other."""
    first, second = f"{prefix_of(one)}/", f"{prefix_of(other)}/"
    return first.startswith(second) or second.startswith(first)


@contextmanager
def inspecting(file: JobFile, key: str, path: Path) -> Iterator[None]:
    """A block that looks at a directory which a job will fill. ConfigError if it is a file, or cannot be looked at."""
    try:
        if is_there(path) and not path.is_dir():
            raise file.error(key, f"{path} is a file; name a directory")
        yield
    except (OSError, ValueError) as error:  # a loop of links, a name with a null character
        raise file.error(key, f"cannot look at what is there: {error}") from None


def holds(outer: Path, inner: Path) -> bool:
    """Whether one directory, which need not exist, is another one or a parent of it."""
    outer, inner = without_links(outer), without_links(inner)
    line = (inner, *inner.parents)
    return outer in line or (outer.exists() and any(each.exists() and outer.samefile(each) for each in line))


def _needed(file: JobFile) -> Iterator[tuple[str, Path]]:
    """The directories that must stay, each with what it is to the job."""
    config = file.config
    yield "the working directory", Path.cwd()
    yield "the job file's directory", file.directory
    for extra in config.python_path:
        yield "a directory of python_path", file.directory / extra
    for path in _paths(file):
        for directory in local_directories(path, str(file.directory)):
            yield "a directory of the input", directory
    stage_dir = local_path(config.spark.stage_dir or gettempdir(), ".")
    if stage_dir is not None:
        yield "the directory where inputs are staged", stage_dir


def _inputs(file: JobFile) -> list[InputConfig]:
    return [step.read for step in file.stages.values() if step.read is not None]


def _paths(file: JobFile) -> list[str]:
    """Those that inputs and their views name."""
    named = ((given.path, *(view.path for view in given.views.values())) for given in _inputs(file))
    return [path for several in named for paths in several for path in one_or_more(paths)]
