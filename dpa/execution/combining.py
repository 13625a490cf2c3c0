"""Whether a sender folds equal keys before it sends, where the job does not say."""

FEW_RECORDS = 4_096
"""Of a block with fewer, records are sent as they are: to fold them takes longer than to process them."""

_MOST_STATES = 0.5
"""Folding pays while states are at most this part of the records (a half): where keys are many, it only costs (as of
Spark's partial aggregation, SPARK-57688)."""

_APART = 16  # where it did not pay, this many times as many records are sent as they are before it is tried again


class Combining:
    """Folding as long as it pays. One sender's; each task has a copy of its own.

    Attributes:
        has_paid: whether it did the last time.
    """

    def __init__(self) -> None:
        self._apart = 0
        self.has_paid = False

    def pays(self, rows: int) -> bool:
        return rows >= FEW_RECORDS and self._apart <= 0

    def folded(self, rows: int, states: int) -> None:
        self.has_paid = states <= _MOST_STATES * rows
        self._apart = 0 if self.has_paid else _APART * rows

    def sent(self, rows: int) -> None:
        self._apart -= rows
