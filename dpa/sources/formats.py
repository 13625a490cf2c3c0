"""The format of files by the endings of their names. Reads no files."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from dpa.errors import TableError
from dpa.sources.paths import data_files, is_partitioned, is_readable_by_arrow, prefix_of, without_file_scheme

ENDINGS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".txt": "text",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}

COMPRESSED = {".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".xz", ".zst", ".zstd"}
"""Endings of files that Spark decompresses."""


def format_of(path: str) -> str | None:
    """The format of a path or glob; an ending such as `.gz` is looked behind. None if its ending is unknown."""
    inner = without_file_scheme(path).lower()
    name = PurePosixPath(inner.partition("?")[0] if "://" in inner else inner)
    return ENDINGS.get(name.with_suffix("").suffix if name.suffix in COMPRESSED else name.suffix)


def format_found(
    paths: Sequence[str], glob: str | None = None, recursive: bool = False, exclude: Sequence[str] = ()
) -> str:
    """The format of the files that absolute paths name, as `data_files` takes them. Raises TableError if there are
    none, their endings are unknown, or of several formats."""
    shown: dict[str | None, str] = {}
    for path in paths:
        if not is_readable_by_arrow(path):
            raise TableError(f"{prefix_of(path)}: Spark alone lists it, so name its `format`")
        for file in data_files(path, glob, recursive or is_partitioned(path), exclude):
            shown.setdefault(format_of(file.path), file.name)
    if None in shown:
        known = ", ".join(ENDINGS)
        raise TableError(
            f"{shown[None]}: its ending is of no known format: name `format`, or files that end with {known}"
        )
    if len(shown) > 1:
        each = " and ".join(f"{name} ({shown[name]})" for name in sorted(filter(None, shown)))
        raise TableError(f"there are files of several formats, {each}: name one `format`, and choose files by `glob`")
    return next(name for name in shown if name is not None)
