"""The records on which user code has failed, or which could not be read: the coordinator's view. They belong to the
generation: with a checkpoint goes what had been noted when it was cut."""

from dataclasses import replace

from dpa.protocol.graph import Tolerated
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.end import RecordsFailed
from dpa.tolerance import Failed, summed


class Errors:
    """All of them."""

    def __init__(self, tolerated: Tolerated) -> None:
        self.counts = tolerated.before.counts
        self._letters = [*tolerated.before.letters]
        self._earlier = tolerated.before.earlier
        self._most = tolerated.most

    @property
    def noted(self) -> Failed:
        return Failed(self.counts, tuple(self._letters), self._earlier)

    def forget(self, stored: int) -> None:
        """Forget the first letters: the job's checkpoint store has as many."""
        del self._letters[: max(0, stored - self._earlier)]
        self._earlier = max(stored, self._earlier)

    def note(self, task: Address, found: RecordsFailed, epoch: int, generation: int) -> str | None:
        """Note what a task reports; returns why the job fails, None if it continues."""
        sender = None if found.sender is None else str(found.sender)
        self._letters += (
            replace(
                letter,
                task=str(task),
                sender=sender,
                edge=found.edge,
                block=found.block,
                epoch=epoch,
                generation=generation,
            )
            for letter in found.failed.letters
        )
        self.counts = summed((*self.counts, *found.failed.counts))
        records = sum(each.records for each in self.counts)
        if self._most is None or records <= self._most:
            return None
        examples = "; ".join(f"{each.records} in {each.step}: {each.example}" for each in self.counts)
        return f"{records} records were left out, and `max_errors` allows {self._most}: {examples}"
