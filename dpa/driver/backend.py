"""Where the tasks of a run are: the one interface that `dpa.driver.run` has to Ray, to the simulator, and to this
process."""

from contextlib import AbstractContextManager
from typing import ClassVar, Protocol

from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.wire.nodes import JobDemand, Placer


class Runner(Protocol):
    """Runs a plan."""

    @property
    def is_ready(self) -> bool:
        """Whether a plan would be begun with at once: what takes a moment until then costs no time."""
        ...

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan to its end: whether this returns or raises, no task is at work then. Shares of results are staged
        by the sinks of `plan.deliveries`; `hooks` are called meanwhile. DpaError if the job fails."""
        ...


class Backend(Protocol):
    """A place for tasks. `dpa.runtime.backend.RayBackend`, `experiments.simulation.backend.SimulatedBackend` and
    `dpa.local.backend.LocalBackend` are backends.

    Attributes:
        name: what reports call it.
        samples: whether first routing tables are to be planned from a sample, which runs user code in this process, and
            depends on how fast that is.
    """

    name: ClassVar[str]
    samples: ClassVar[bool]

    def prepared(
        self, tasks: int, placer: Placer | None = None, demand: JobDemand | None = None
    ) -> AbstractContextManager[Runner]:
        """A block in which one plan can be run. What takes time to start is started with the block, without waiting
        until the plan is there: `run` raises what went wrong meanwhile. However the block ends, no task is left.

        Args:
            tasks: how many the plan's stages will have.
            placer: chooses their nodes, once the backend knows them; `run` raises its errors. A backend without nodes
                does not ask.
            demand: what tasks request, of a backend that others use too.
        """
        ...
