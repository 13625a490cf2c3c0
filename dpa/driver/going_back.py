"""Takes a job back to one of its checkpoints, with what it has published since (`dpa.checkpoints PATH back-to`).

First everything is looked at, and nothing changes if one place cannot go back. Then a claim that names the checkpoint
makes it the newest one, which stops whoever still runs the job. Last, place by place, what was published since is taken
back. Where that is cut short the job is not resumed, as a place has too much, until the same command has ended it."""

from collections.abc import Iterator
from pathlib import Path

from dpa._secrets import HIDDEN
from dpa.checkpoints import Chain, Manifest
from dpa.config import JobFile, OutputConfig, parse_written
from dpa.driver.outputs import Publication, as_error, written
from dpa.errors import CheckpointError
from dpa.protocol.checkpoint_format import below_head
from dpa.protocol.published import is_ahead
from dpa.sinks.formats import FORMATS


def back_to(chain: Chain, number: int, given: JobFile | None = None) -> Iterator[str]:
    """Take a job back to a checkpoint; yields a line for each place, once that is done. `given`: the job, if not as the
    checkpoint has it. CheckpointError if there is no such checkpoint, or what was published since cannot be taken
    back."""
    found = chain.checkpoints()
    if number not in found:
        there = ", ".join(map(str, found)) or "none"
        raise CheckpointError(f"{chain.job} has no checkpoint {number} to go back to; there are {there}")
    checkpoint = found[number]
    for file in checkpoint.files().values():
        chain.data.read(file)
    outputs = _outputs(chain, checkpoint, given)
    ahead = [output for output in outputs if _is_ahead(output, checkpoint)]
    for output in ahead:
        with as_error(CheckpointError, str(output.place)):
            output.sink.take_back(checkpoint.epoch, is_trial=True)
    chain.claim(back_to=checkpoint)  # before anything goes: a driver that still runs can commit nothing after this
    for output in outputs:
        if output in ahead:
            with as_error(CheckpointError, str(output.place)):
                output.sink.take_back(checkpoint.epoch, is_trial=False)
            yield f"{output.place}: what was published after epoch {checkpoint.epoch} is taken back"
        else:
            yield f"{output.place}: nothing was published after epoch {checkpoint.epoch}"


def _outputs(chain: Chain, checkpoint: Manifest, given: JobFile | None) -> list[Publication]:
    """Where the job commits epochs with its checkpoints."""
    about, _ = below_head(chain.data, checkpoint)
    if "publishes" not in about:
        raise CheckpointError(f"{chain.job} does not say where it publishes, as an older version has written it")
    file = given or parse_written(about["job"])
    sections = {key: output for key, output in written(file) if key in about["publishes"]}
    if given is None:
        sections = {key: _below(about["working"], output) for key, output in sections.items()}
    if missing := [key for key in about["publishes"] if key not in sections]:
        raise CheckpointError(f"the job publishes by {', '.join(missing)}, which {file.origin} does not name")
    if hidden := [key for key, output in sections.items() if HIDDEN in str(output.model_dump())]:
        raise CheckpointError(f"the checkpoint has no passwords of {', '.join(hidden)}: name the job file by --config")
    found = [Publication.of(file, output, key) for key, output in sections.items()]
    for output in found:
        output.know(chain.job, with_checkpoints=True)
    return found


def _below(working: str, output: OutputConfig) -> OutputConfig:
    if output.path is None or "://" in output.path or not FORMATS[output.format].is_directory:
        return output
    return output.model_copy(update={"path": str(Path(working, output.path))})


def _is_ahead(output: Publication, checkpoint: Manifest) -> bool:
    with as_error(CheckpointError, str(output.place)):
        newest = output.sink.newest()
    return is_ahead(newest, output.place, checkpoint) or (newest is not None and newest.is_last)
