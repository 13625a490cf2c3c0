"""A flow as the job file that it makes: what `Flow` runs, and its rows add to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpa.config import ExecutorConfig
from dpa.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from dpa.config import keywords as kw


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
