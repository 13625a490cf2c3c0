"""Loads the executors that a job file names: imports modules, makes objects, and explains what is missing."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from dpa._secrets import without_secrets
from dpa._util.words import alternatives, suggestion
from dpa.aggregates import READY_MADE
from dpa.config import MADE_IN_PYTHON, ExecutorConfig, InputConfig, JobFile, OutputConfig, ReferenceConfig
from dpa.errors import ConfigError
from dpa.execution.failures import USER_ERRORS
from dpa.placement.allocators import ALLOCATORS
from dpa.sinks.memory import Callback
from dpa.sinks.sink import Sink

SOURCES, SINKS = "dpa.sources", "dpa.sinks"
"""The groups of entry points under which packages register feeds and sinks."""


def search_path(file: JobFile) -> tuple[str, ...]:
    """Where a job's modules are looked up: in `python_path`, beside the job file, and in the working directory."""
    directories = [file.directory / extra for extra in file.config.python_path]
    return tuple(dict.fromkeys(str(path.resolve()) for path in (*directories, file.directory, Path.cwd())))


def actors_path(file: JobFile) -> tuple[str, ...]:
    """Where actors look modules up: as `search_path`, and where this process does, for executors given as objects."""
    return tuple(dict.fromkeys((*search_path(file), *(path for path in sys.path if path))))


def made_of(file: JobFile, key: str, section: InputConfig, *kinds: type, group: str | None = None) -> Any:
    """What the input at `key` names, of one of these kinds; ConfigError if it cannot be found or made, or is none."""
    made = _used(file, key, section, group)
    if not isinstance(made, kinds):
        due = " or ".join(f"`dpa.{kind.__name__}`" for kind in kinds)
        raise file.error(f"{key}.use", f"{section.use!r} is {type(made).__name__}, not a {due}")
    return made


def sink_of(file: JobFile, key: str, section: OutputConfig, given: Any = None) -> Sink:
    """The sink that an output at `key` names, or one that calls the function it names, or that is `given` in its place;
    ConfigError if it is neither."""
    made = _used(file, key, section, SINKS) if given is None else given
    if isinstance(made, Sink):
        if misfit := _misfit(made.commit, (), 1, 0.0, is_last=True):
            due = f"{misfit}; write `def commit(self, staged, epoch, seconds, *, is_last=False)`"
            raise file.error(f"{key}.use", f"{type(made).__name__}.commit cannot be called: {due}")
        return made
    if callable(made):
        if section.publish is None:
            why = "is a function, which is given rows by epoch: set `publish`, or name a `dpa.Sink`"
            raise file.error(f"{key}.use", f"{section.use!r} {why}")
        if misfit := _misfit(made, None, 1):
            raise file.error(f"{key}.use", f"{section.use} cannot be called with rows and an epoch: {misfit}")
        return Callback(made)
    raise file.error(f"{key}.use", f"{section.use!r} is {type(made).__name__}, not a `dpa.Sink`")


def _used(file: JobFile, key: str, section: InputConfig | OutputConfig, group: str | None) -> Any:
    assert section.use is not None
    return loaded(file, key, ExecutorConfig(use=section.use, args=section.args), group)


def reference_of(file: JobFile, key: str, section: ReferenceConfig, inputs: Sequence[str]) -> Any:
    """The function that computes a reference, named at `key`, or None. With several `inputs` it gets each by its name.
    ConfigError if it cannot be found, or not be called with a DataFrame of each input."""
    if section.function is None:
        return None
    key = f"{key}.function"
    found = named(file, key, section.function)
    if not callable(found):
        raise file.error(key, f"{section.function!r} is {type(found).__name__}, not a function of a DataFrame")
    if misfit := _misfit(found, None) if len(inputs) == 1 else _misfit(found, **dict.fromkeys(inputs)):
        what = "one argument, a DataFrame" if len(inputs) == 1 else f"a DataFrame as each of {', '.join(inputs)}"
        signature = f"{section.function}{inspect.signature(found)}"
        raise file.error(key, f"{signature} cannot be called with {what}: {misfit}")
    return found


def _misfit(found: Callable[..., Any], *given: Any, **named: Any) -> str | None:
    """Why something cannot be called so. None: it can, or has no signature, as some functions written in C."""
    try:
        inspect.signature(found).bind(*given, **named)
    except TypeError as error:
        return str(error)
    except ValueError:
        pass
    return None


def require_placing(file: JobFile) -> None:
    """ConfigError if the allocator that places the job's tasks, or the policy that looks at their placement again, is
    one of the user's that cannot be found or made, or is none."""
    placement = file.config.placement
    if placement is None:
        return
    from dpa.placement.online import POLICIES  # with the profile, which most jobs have no use for

    online = placement.online
    if online is not None and online.policy not in POLICIES:
        key = "placement.online.policy"
        if ":" not in online.policy:
            known = alternatives([*map(repr, POLICIES), "`package.module:Name` of your own"])
            raise file.error(key, f"should be {known}; {suggestion(online.policy, POLICIES, f'not {online.policy!r}')}")
        found = named(file, key, online.policy)
        if not isinstance(found, type) or _misfit(found, online) or not callable(getattr(found, "look", None)):
            what = "a class that is made of an `OnlinePlacement` and has `look(deployment)`"
            raise file.error(key, f"{online.policy!r} is not {what}")
    if placement.allocator not in ALLOCATORS:
        made = loaded(file, "placement.allocator", ExecutorConfig(use=placement.allocator))
        if not callable(getattr(made, "allocate", None)):
            what = f"{placement.allocator!r} is {type(made).__name__}, which has no `allocate(graph, cluster)`"
            raise file.error("placement.allocator", what)


def named(file: JobFile, key: str, name: str) -> Any:
    """The object that `package.module:Name`, given at `key`, names; ConfigError if there is none."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise file.error(key, f"{name!r} should be `package.module:Name`")
    paths = _searched(file)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        searched = f"looked in {', '.join(paths)} and the installed packages"
        missing = "" if error.name == module_name else f" (needed by {module_name!r})"
        raise file.error(key, f"there is no module {error.name!r}{missing}; {searched}") from None
    except USER_ERRORS as error:
        raise file.error(key, f"the module {module_name!r} cannot be imported: {error!r}") from None
    try:
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except AttributeError:
        public = [item for item in vars(module) if not item.startswith("_")]
        hint = suggestion(attribute, public, f"it has {', '.join(sorted(public)[:20])}")
        raise file.error(key, f"the module {module_name!r} has no {attribute!r}; {hint}") from None


def _searched(file: JobFile) -> tuple[str, ...]:
    paths = search_path(file)
    # Also those that are there: modules of another job, which came later, may have the same names.
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
    importlib.invalidate_caches()
    return paths


def _registered(file: JobFile, key: str, name: str, group: str) -> Any:
    """What an installed package registers under a name as an entry point of a group; ConfigError if none does."""
    _searched(file)
    found = {entry.name: entry for entry in entry_points(group=group)}
    if name not in found:
        hint = suggestion(name, found, f"registered are {', '.join(sorted(found)) or 'none'}")
        own = "your own is `package.module:Name`"
        raise file.error(key, f"no installed package registers {name!r} among its {group}; {hint}; {own}")
    try:
        return found[name].load()
    except (*USER_ERRORS, AttributeError) as error:
        raise file.error(key, f"{name!r} ({found[name].value}) cannot be imported: {error!r}") from None


def require_in_file(text: str) -> None:
    """Raises ConfigError where a text stands for an object."""
    if text.startswith(MADE_IN_PYTHON):
        what = f"{text.removeprefix(MADE_IN_PYTHON)} was an object of the program that made this job"
        raise ConfigError(f"{what}, which no file can name: write `package.module:Name` of a class or function")


def loaded(file: JobFile, section: str, executor: ExecutorConfig, group: str | None = None) -> Any:
    """The object that the section at a key path names, called with its `args` if it is a class. A name without a module
    is one of the entry points of `group`. ConfigError if it cannot be found or made."""
    with file.blaming(section, ConfigError):
        require_in_file(executor.use)
    if section.rpartition(".")[2] in ("reducer", "reduce") and ":" not in executor.use:
        if executor.use not in READY_MADE:
            module, _, name = executor.use.rpartition(".")
            is_dotted = module and name != "py" and all(map(str.isidentifier, executor.use.split(".")))
            own = f"{module}:{name}" if is_dotted else "package.module:Name"
            known = f"the ready-made ones are {', '.join(READY_MADE)}; your own is `{own}`"
            known += suggestion(executor.use, READY_MADE, before="; ")
            raise file.error(section, f"there is no ready-made reducer {executor.use!r}; {known}")
        found: Any = READY_MADE[executor.use]
    elif group is not None and ":" not in executor.use:
        found = _registered(file, f"{section}.use", executor.use, group)
    else:
        found = named(file, section, executor.use)
    if not isinstance(found, type):
        if executor.args:
            raise file.error(f"{section}.args", f"{executor.use!r} is not a class, so it takes no arguments")
        return found
    try:
        return found(**executor.args)
    except USER_ERRORS as error:
        given = without_secrets(executor.args)
        key = section if section == "placement.allocator" else f"{section}.args"  # which it does not have
        raise file.error(key, f"{executor.use} cannot be made of {given}: {error!r}") from None
