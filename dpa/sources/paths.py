"""Where files lie: relative paths, globs and URIs, on any file system that pyarrow can open. Reads no files."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from dpa._util.disk import without_links
from dpa._util.words import suggestion
from dpa.errors import TableError
from dpa.sources.manifest import MANIFEST, ResultManifest

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_MAGIC = re.compile(r"[*?\[]")
_HADOOPS_GLOBS = re.compile(r"[{}\[\]*?\\]")
_HADOOPS = re.compile(r"[{\\^]")
_ARROW_SCHEMES = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")


def resolved(path: str, base: str) -> str:
    """An absolute path or URI as it is; another path below the directory `base`."""
    return path if _URI.match(path) else os.path.normpath(Path(base, path).absolute())


def one_or_more(paths: str | Sequence[str] | None) -> list[str]:
    """One path, several or none, as a list."""
    return [paths] if isinstance(paths, str) else [*(paths or ())]


def is_literal(path: str) -> bool:
    """Whether something on this machine has just this absolute path as its name. Then it is no glob, whatever
    characters it has."""
    place = without_file_scheme(path)
    return Path(place).is_absolute() and os.path.lexists(place)


def is_readable_by_arrow(path: str) -> bool:
    """Whether pyarrow can open and list such a path; it knows neither Spark's `s3a` nor globs with `{a,b}`."""
    is_glob = "{" in path and not is_literal(path)
    return not is_glob and (not _URI.match(path) or path.partition(":")[0] in _ARROW_SCHEMES)


def is_surely_local(path: str) -> bool:
    """Whether Spark would look for this path on this machine, and take each character as dpa does.

    A path without a scheme lies on Hadoop's default file system if Hadoop is configured. `{a,b}`, `[^a]` and
    backslashes only mean something in Hadoop's globs."""
    local = path.startswith("file:") or not (_URI.match(path) or "HADOOP_CONF_DIR" in os.environ)
    return local and (not _HADOOPS.search(path) or is_literal(path))


def local_path(path: str, base: str) -> Path | None:
    """The local place of a path or `file:` URI, relative ones below `base`; None for other URIs."""
    whole = without_file_scheme(resolved(path, base))
    return None if _URI.match(whole) else Path(whole)


def local_directories(path: str, base: str) -> list[Path]:
    """The local directories from which a path of a job file reads, sorted. A file gives its directory; a link also its
    target's; a glob its part without `*`, `?`, `[` and `{`, and its matches. A URI gives none."""
    whole = local_path(path, base)
    found: set[Path] = set()
    for one in [] if whole is None else _alternatives(str(whole)):
        magic = None if is_literal(one) else _MAGIC.search(one)
        places = [Path(one[: magic.start()]).parent if magic else Path(one)]
        with suppress(OSError):  # what cannot be looked at is reported when it is to be read
            places += [Path(match.path) for match in _matches(one)]
        found.update(without_links(place) for place in places if place.is_symlink())
        found.update(places)
    return sorted({without_links(place if place.is_dir() else place.parent) for place in found})


def _alternatives(path: str) -> list[str]:
    """The globs that Spark makes of one with `{a,b}`."""
    inner = re.search(r"\{([^{}]*)\}", path)
    if inner is None or is_literal(path):
        return [path]
    head, tail = path[: inner.start()], path[inner.end() :]
    return [one for choice in inner.group(1).split(",") for one in _alternatives(head + choice + tail)]


@dataclass(frozen=True)
class Location:
    """A path on a file system; `prefix` and `suffix` make it a URI, and are empty for local paths."""

    filesystem: fs.FileSystem
    path: str
    prefix: str = ""
    suffix: str = ""

    @property
    def name(self) -> str:
        """The path as a user would write it, and as a `ParquetSplit` has it."""
        return f"{self.prefix}{self.path}{self.suffix}"

    @property
    def kind(self) -> fs.FileType:
        """What is there: a file, a directory, or nothing (`FileType.NotFound`)."""
        return self.filesystem.get_file_info(self.path).type

    @property
    def exists(self) -> bool:
        return bool(self.kind != fs.FileType.NotFound)

    def remove_directory(self) -> None:
        """Remove the directory here, if there is one, with its content."""
        if self.kind == fs.FileType.Directory:
            self.filesystem.delete_dir(self.path)

    def at(self, path: str) -> Location:
        """Another path on the same file system."""
        return Location(self.filesystem, path, self.prefix, self.suffix)

    def below(self, name: str) -> Location:
        return self.at(f"{self.path.rstrip('/')}/{name}")


def locate(path: str) -> Location:
    """Find the file system of an absolute path or URI, which need not exist. Raises TableError if pyarrow cannot reach
    it."""
    path = without_file_scheme(path)
    if not _URI.match(path):
        return Location(fs.LocalFileSystem(), path)
    try:
        filesystem, inner = fs.FileSystem.from_uri(path)
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        raise TableError(f"{path}: not a place that can be read: {error}") from None
    address, mark, query = path.partition("?")
    if not address.rstrip("/").endswith(inner):
        raise TableError(f"{path}: escaped characters in the path of a URI are not supported")
    return Location(filesystem, inner, address.rstrip("/").removesuffix(inner), mark + query)


def is_partitioned(path: str) -> bool:
    """Whether a path names a directory with sub-directories such as `year=2024`."""
    folders = [place for place in _matches(path) if place.kind == fs.FileType.Directory]
    inside = [info for place in folders for info in place.filesystem.get_file_info(fs.FileSelector(place.path))]
    return any(info.type == fs.FileType.Directory and "=" in info.base_name for info in inside)


def found(path: str) -> list[Location]:
    """What an absolute path, URI or glob leads to. Raises TableError if it is nothing, with the most similar local
    name."""
    matches = _matches(path)
    if matches:
        return matches
    place = Path(without_file_scheme(path))
    beside = [entry.name for entry in place.parent.iterdir()] if is_surely_local(path) and place.parent.is_dir() else []
    same = next((f"; did you mean {name!r}?" for name in sorted(beside) if Path(name).stem == place.name), "")
    raise TableError(f"{path}: no such file or directory{suggestion(place.name, beside, same, before='; ')}")


def data_files(
    path: str, glob: str | None = None, recursive: bool = False, exclude: Sequence[str] = ()
) -> list[Location]:
    """The files that a path names, sorted: a file, a directory's content, or a glob's matches. Raises TableError if
    there is no such file or directory, or it holds no such file.

    Args:
        path: absolute path or URI; `*`, `?` and `[...]` match within one part of it.
        glob: keep only files whose name matches. In a directory, names that start with `_` or `.` never count, nor do
            files that a result's manifest there does not name.
        recursive: whether to search directories to any depth.
        exclude: names of directories, or globs of names, not to search.
    """
    files: list[Location] = []
    for root in found(path):
        if root.kind == fs.FileType.File:
            files.append(root)
        else:
            named = _named_by_manifests(_files_in(root, recursive, exclude), root)
            shown = (inner for inner in named if not is_hidden(inner[len(root.path) :]))
            files.extend(root.at(inner) for inner in shown if not is_below(inner[len(root.path) :], exclude))
    kept = [file for file in files if glob is None or fnmatchcase(posixpath.basename(file.path), glob)]
    if not kept:
        which = f" whose name matches {glob!r}" if glob else ""
        deeper = "" if recursive else "; sub-directories are read with `recursive: true`"
        raise TableError(f"{path}: holds no file{which}{deeper}")
    return sorted(kept, key=lambda file: file.path)


def _files_in(root: Location, recursive: bool, exclude: Sequence[str]) -> list[str]:
    found, folders = [], [root.path]
    for folder in folders:
        # One listing of a tree is quicker than one for each directory, unless most of the tree is excluded.
        inside = root.filesystem.get_file_info(fs.FileSelector(folder, recursive=recursive and not exclude))
        found += [info.path for info in inside if info.is_file]
        searched = [info for info in inside if info.type == fs.FileType.Directory] if recursive and exclude else []
        folders += [each.path for each in searched if not _is_one_of(each.base_name, exclude)]
    return found


def _named_by_manifests(paths: list[str], root: Location) -> list[str]:
    """The paths, but those that a result's manifest names where there is one."""
    results: dict[str, tuple[str, ...]] = {}
    for path in paths:
        folder, name = posixpath.split(path)
        if name == MANIFEST:
            place = prefix_of(root.at(path).name)
            with root.filesystem.open_input_file(path) as stream:
                found = ResultManifest.parse(stream.read(), place)
            if found.files is None:
                raise TableError(f"{place} names no files: no job that was to write a result there has ended well yet")
            results[folder] = found.files
    if not results:
        return paths
    others = [path for path in paths if not any(str(folder) in results for folder in PurePosixPath(path).parents)]
    return others + [posixpath.join(folder, name) for folder, names in results.items() for name in names]


def prefix_of(uri: str) -> str:
    """A URI without user, password and options; a path as it is."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}" if "://" in uri else uri


def pruned(path: str, exclude: Sequence[str], glob: str | None = None) -> list[Location]:
    """What a path names without some directories: as few files and whole trees as that takes, sorted.

    Args:
        path: absolute path or URI, as in `data_files`.
        exclude: names of directories, or globs of names, to leave out.
        glob: leave out files beside those directories whose name does not match.
    """
    kept: list[Location] = []
    for root in _matches(path):
        kept += _without(root, exclude, glob) if root.kind == fs.FileType.Directory else [root]
    return sorted(kept, key=lambda place: place.path)


def _without(folder: Location, exclude: Sequence[str], glob: str | None) -> list[Location]:
    """The directory itself if nothing below it is excluded, else what remains of it."""
    whole, kept = True, []
    for info in sorted(folder.filesystem.get_file_info(fs.FileSelector(folder.path)), key=lambda info: info.path):
        place = folder.at(info.path)
        if is_hidden(info.base_name):
            continue
        if info.type != fs.FileType.Directory:
            kept += [place] if glob is None or fnmatchcase(info.base_name, glob) else []
            continue
        below = [] if _is_one_of(info.base_name, exclude) else _without(place, exclude, glob)
        whole = whole and below == [place]
        kept += below
    return [folder] if whole else kept


def for_hadoop(path: str) -> str:
    """The path, escaped so that Hadoop takes each character literally."""
    return _HADOOPS_GLOBS.sub(r"\\\g<0>", path)


def _matches(path: str) -> list[Location]:
    """What exists of a path, its globs expanded one part at a time."""
    path = without_file_scheme(path)
    address, mark, query = path.partition("?") if _URI.match(path) else (path, "", "")
    magic = _MAGIC.search(address)
    if magic is None or locate(path).exists:
        return [place for place in [locate(path)] if place.exists]
    head = address[: magic.start()].rpartition("/")[0]
    found = [locate((head or "/") + mark + query)]
    for part in address[len(head) + 1 :].split("/"):
        folders = [place for place in found if place.kind == fs.FileType.Directory]
        found = [
            folder.at(info.path)
            for folder in folders
            for info in folder.filesystem.get_file_info(fs.FileSelector(folder.path))
            if fnmatchcase(info.base_name, part) and (info.base_name == part or not is_hidden(info.base_name))
        ]
    return found


def without_file_scheme(path: str) -> str:
    """A `file:` URI's path; anything else as it is."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


def is_below(path: str, names: Sequence[str]) -> bool:
    """Whether a directory of a relative path has one of the names."""
    return any(_is_one_of(part, names) for part in path.split("/")[:-1])


def _is_one_of(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, each) for each in globs)


def is_hidden(path: str) -> bool:
    """Whether a part of a path has a name that Spark and Hive skip."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))
