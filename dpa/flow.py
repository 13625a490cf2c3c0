"""A graph of stages, written in Python.

    flow = Flow("trending")
    tags = flow.read(tweets).flat_map(hashtags)
    counts = tags.key_by("tag").reduce(Count(), parallelism=4)
    counts.top_k(10, by="count").write("out/trending")
    flow.run()

A flow is a job file in the making: each call adds a step to its `stages`, under the same words, and the same checks
apply. Executors and tables may be objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dpa import config as job_config
from dpa._looks import WrittenFlow, picture
from dpa._streams import KeyedRows, Stream
from dpa.config.inputs import FORMATS
from dpa.errors import ConfigError, traced_from_caller
from dpa.job import Job, Runnable
from dpa.sources.formats import format_of
from dpa.spark import as_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from dpa.config import keywords as kw
    from dpa.driver.spec import JobSpec

__all__ = ["Flow", "KeyedRows", "Stream"]

_OF_READERS = {"sep": "sep", "separator": "sep", "delimiter": "sep", "header": "header", "has_header": "header"}
"""Keywords of other readers of CSV, and the options that they are here."""


@traced_from_caller
class Flow(WrittenFlow, Runnable):
    """Steps on rows, which run as a graph of stages when `run` is called. The examples are of this flow:

    >>> shop = Flow("shop")
    >>> counts = shop.read([{"item": "tea"}]).key_by("item").reduce("count")

    Attributes:
        name: used in reports and file names.
        resumable: where its last run left checkpoints, for `resume`; None: nowhere.
    """

    def read(
        self,
        input: Any,
        *,
        name: str | None = None,
        time: str | kw.TimeSection | None = None,
        **keywords: Unpack[kw.Read],
    ) -> Stream:
        """Read an input: `shop.read([{"item": "tea"}], name="orders")`.

        Args:
            input: a path or glob, as text or `Path`, or a list of them, in which texts end as files do unless `format`
                is given; an Arrow table, a list of records, a pandas, polars or Spark DataFrame; or an `input` section
                of a job file as a mapping.
            name: of the step, by default `read`; also of its view in reference queries.
            time: the column that says when each row happened, for windows, or the section `time` of an `input`.
            keywords: `parallelism`, `sample`; `schema`, the columns and types of an input in memory, or of CSV and JSON
                lines with `in_place=True`. With a path also the other keys of an `input` of files, such as `format`,
                `options` or `recursive`.
        """
        options: dict[str, Any] = {**keywords}
        for word in _OF_READERS.keys() & options.keys():
            right = {_OF_READERS[word]: options[word]}
            raise ConfigError(f"`{word}` is an option of the format: read(..., options={right})")
        if isinstance(input, str | PathLike) or _are_paths(input, options):
            of_files = {key: options.pop(key) for key in ("format", *FORMATS["csv"].keys) if key in options}
            of_files |= {"columns": options.pop("schema")} if "schema" in options else {}
            path = [*map(fspath, input)] if isinstance(input, list | tuple) else fspath(input)
            input = {"path": path, **of_files}
        is_section = isinstance(input, Mapping)
        if is_section and not {"format", "path"} & {*input}:
            wanted = "{'path': 'orders/*.parquet'}, or a table such as pyarrow.table(...)"
            raise ConfigError(f"this is a mapping without `path` or `format`: give an `input` section such as {wanted}")
        section = dict(input) if is_section else {"format": "given"}
        if time is not None and "time" in section:
            raise ConfigError("the `input` section says `time` already: give it once")
        section |= {} if time is None else {"time": time}
        step = self._add(name, "read", {"read": section}, options)
        if not is_section:
            self._objects[f"stages.{step}.read"] = as_table(input)
        return Stream(self, step)

    def job(self) -> Job:
        """The flow as a job, as in `shop.job().config.name`.

        Raises:
            ConfigError: an option is unknown, or does not fit.
        """
        document = {"name": self.name, **self._sections, "stages": self._stages}
        return Job(file=job_config.parse(document, origin=f"Flow({self.name!r})"), objects=self._objects)

    def _now(self) -> JobSpec:
        return self.job().spec

    def __repr__(self) -> str:
        return f"<Flow {self.name!r}: {', '.join(self._stages) or 'no steps'}>"

    def _repr_html_(self) -> str:
        return picture(self._stages)


def _are_paths(given: Any, options: Mapping[str, Any]) -> bool:
    """Whether a list is of files, and not of records."""
    paths = isinstance(given, list | tuple) and all(isinstance(each, str | PathLike) for each in given)
    are_files = all(isinstance(each, PathLike) or format_of(each) for each in given) if paths else False
    return paths and bool(given) and (are_files or "format" in options)
