"""A flow as the job file that it makes, and what can be seen of it before it runs, in this process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpa._secrets import hidden
from dpa._util.lazy_pandas import import_pandas_late
from dpa._util.words import suggestion
from dpa.config import MADE_IN_PYTHON, ExecutorConfig, JobFile
from dpa.config.stages import OPERATIONS
from dpa.driver import FIRST_ROWS
from dpa.errors import ConfigError, DpaError, traced_from_caller
from dpa.operators import ON_COLUMNS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from typing_extensions import Unpack

    from dpa.config import keywords as kw
    from dpa.driver.looking import Looking

_NAMED = {"read": ("path", "use", "table", "format"), "join": ("how",), "top_k": ("k",), "window": ("kind",)}
"""The keys of some operations: the first that is given describes the step. All keys describe the others."""

_EXECUTORS = ("map", "flat_map", "filter", "reduce", "process", "key_by")
"""The keys whose section names a function or a class."""

_IN_NOTEBOOKS = 5  # rows of a step that a notebook shows


class WrittenFlow:
    """The steps of a flow, as sections of a job file, and the objects that no file can hold.

    Attributes:
        name: used in reports and file names.
    """

    def __init__(self, name: str = "flow", **sections: Unpack[kw.Flow]) -> None:
        """`sections` are further keys of a job file that are not of a step: `seed`, `limits`, `spark`, `ray`,
        `python_path`."""
        if "stages" in sections:
            raise ConfigError("the steps of a flow are made by its calls: leave `stages` out")
        self.name = name
        self._sections = sections
        self._stages: dict[str, dict[str, Any]] = {}
        self._objects: dict[str, Any] = {}

    def _add(self, name: str | None, word: str, *sections: Mapping[str, Any]) -> str:
        """Add a step with the keys of all `sections`; returns its name: `word` where none is given, with a number if
        there is one of that name.

        Raises:
            ConfigError: there is a step of the name that is given, or a key comes twice.
        """
        if name is not None and not isinstance(name, str):
            raise ConfigError(f"the name of a step is a text, not {name!r}")
        if name in self._stages:
            raise ConfigError(f"the flow {self.name!r} has a step {name!r} already: give this one another name")
        number, unique = 1, word if name is None else name
        while unique in self._stages:
            number += 1
            unique = f"{word}_{number}"
        self._stages[unique] = {}
        for section in sections:
            self._give(unique, section)
        return unique

    def _give(self, step: str, keys: Mapping[str, Any]) -> None:
        """Give a step further keys.

        Raises:
            ConfigError: it has one of them already.
        """
        given = self._stages[step]
        for key, value in keys.items():
            if key in given:
                raise ConfigError(f"the step {step!r} has `{key}` already: {given[key]!r}; give it once")
            given[key] = value

    def _section(self, step: str, word: str, given: Any) -> Any:
        """What stands in the document for an executor: the section itself, or that of the object."""
        if isinstance(given, str):
            return {"use": given}
        if isinstance(given, ExecutorConfig | Mapping):
            return given
        self._objects[f"stages.{step}.{word}"] = given
        return ExecutorConfig.of(given)


@traced_from_caller
class Looks:
    """What the rows of a step show of themselves. Functions of the steps are called on the first rows of each input, in
    this process."""

    flow: WrittenFlow
    step: str

    def show(self, rows: int = 10, *, first: int = FIRST_ROWS) -> None:
        """Print the first rows, with columns and types: `orders.show(3)`. After a step by key, also print which rows of
        the inputs they are of.

        Args:
            rows: how many to print.
            first: the most rows of each input to look at until there are as many.

        Raises:
            ConfigError: the steps are wrong, or Spark alone can read an input.
            ExecutorError: user code failed.
        """
        from dpa.report import show_rows

        found = self._looking().head(rows, first)
        show_rows(found.rows, found.says(rows), rows)

    def head(self, rows: int = 10, *, first: int = FIRST_ROWS) -> pa.Table:
        """The first rows as an Arrow table: `orders.head(3)`. Arguments and errors are those of `show`."""
        found = self._looking().head(rows, first).rows
        return found.slice(0, min(rows, found.num_rows))  # without columns, Arrow would believe `rows`

    def count(self, *, whole: bool = False) -> int:
        """How many rows there are: `orders.count()`. Nothing is read if each row gives one and the inputs know their
        number, as Parquet does. Otherwise all rows are read and go through the steps, in this process.

        Args:
            whole: whether to do so also after a step by key, whose states are then in memory.

        Raises:
            ConfigError: as for `show`; or an input is open; or there is a step by key, without `whole`.
            ExecutorError: user code failed.
        """
        return self._looking().count(whole=whole)

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types, as in `orders.schema.names`. No row is read.

        Raises:
            ConfigError: as for `show`; or a step makes columns that only its rows show.
        """
        return self._looking().schema()

    def explain(self) -> None:
        """Print the plan of this step and those before it, as `--plan` does: `orders.explain()`. It says what runs in
        which tasks, what is combined and sent, and how tasks are balanced. Records are those of a few rows of each
        input. Errors are those of `show`."""
        from dpa.report import show_plan

        show_plan(self._looking().forecast(), sys.stdout)

    def describe(self, rows: int = 10_000, *, first: int = FIRST_ROWS) -> pl.DataFrame:
        """Count, nulls, mean, deviation, minimum, quartiles and maximum of each column of the first rows, as polars
        describes them: `orders.describe()`. Arguments and errors are those of `show`."""
        from dpa.columns.arrow import to_frame

        return to_frame(self.head(rows, first=first)).describe()

    def _looking(self) -> Looking:
        from dpa.driver.looking import Looking

        flow = self.flow
        import_pandas_late()  # half of the time that the first look would take
        return Looking({"name": flow.name, **flow._sections}, flow._stages, flow._objects, self.step)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.step!r} of {self.flow!r}: {does(self.flow._stages[self.step])}>"

    def _repr_html_(self) -> str:
        from dpa.report import error_html, rows_html

        looking = self._looking()
        try:
            found = looking.head(_IN_NOTEBOOKS)
            rows = rows_html(found.rows, found.says(_IN_NOTEBOOKS), _IN_NOTEBOOKS)
        except DpaError as error:
            rows = error_html(str(error))
        return picture(looking.stages, self.step) + rows


class StepOfFile(Looks):
    """A step of a job file; the last one, if none is named."""

    def __init__(self, file: JobFile, step: str | None) -> None:
        self._file = file
        self._sections = file.config.model_copy(update={"stages": file.config.stages or file.stages}).resolved()
        self._steps = self._sections.pop("stages")
        self.step = step or [*self._steps][-1]
        if self.step not in self._steps:
            hint = suggestion(self.step, self._steps, f"it has {', '.join(self._steps)}")
            raise ConfigError(f"{file.origin} has no step {self.step!r}; {hint}")

    def _looking(self) -> Looking:
        from dpa.driver.looking import Looking

        return Looking(self._sections, self._steps, {}, self.step, self._file)


def picture(stages: Mapping[str, Any], marked: str | None = None) -> str:
    """HTML of steps, by their sections in the order of a flow."""
    from dpa.driver.looking import taken_by
    from dpa.report import steps_html

    edges = [(other, name) for name, given in stages.items() for other in taken_by(given) if other in stages]
    return steps_html({name: does(given) for name, given in stages.items()}, edges, marked)


def does(given: Mapping[str, Any]) -> str:
    """In a few words, what the section of a step says; without secrets."""
    word = next((word for word in OPERATIONS if word in given), None)
    if word is None:
        return "union" if len(given["from"]) > 1 else "pass on"
    key = given.get("key_by")
    return hidden(" ".join(filter(None, (word, _short(word, given[word]), key and f"by {_short('key_by', key)}"))))


def _short(word: str, what: Any) -> str:
    if isinstance(what, ExecutorConfig) or (word in _EXECUTORS and isinstance(what, Mapping)):
        named = what.use if isinstance(what, ExecutorConfig) else what.get("use")
        use = str(named).removeprefix(MADE_IN_PYTHON).strip()
        return use if " " in use else use.rpartition(":")[2].rpartition(".")[2]
    if word in {kind.value for kind in ON_COLUMNS} and isinstance(what, Mapping):
        what = [f"{name} = {text}" for name, text in what.items()]
    if isinstance(what, Mapping):
        if what.get("format") == "given":
            return "a table"
        own = _NAMED.get(word)
        what = [*what] if own is None else [what[name] for name in own if name in what][:1]
    text = ", ".join(map(str, what)) if isinstance(what, list | tuple) else str(what)
    return text.replace(MADE_IN_PYTHON, "")
