"""Tasks that come and go while the job runs: the coordinator's view, one change at a time.

A stage is rescaled, or some of its tasks move to other nodes. A task that moves is two: a new one that gets all that
the old one had, and the old one, which leaves. New tasks are started first; then the load balancer publishes the table
in which they take part, and those that leave do not; these hand over what they have, and are stopped when nothing of
theirs is on its way any more. Tasks of a source have no place in a table: new ones ask for splits, and one that leaves
gives back the rest of its own.

Until the new tasks of a change are up it can be cancelled, and is where its stage has nothing left to process: so no
stage stays open for tasks that never came up."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from dpa._util.words import plural
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, on_each, when
from dpa.protocol.wire.addresses import BALANCER, Address, Present
from dpa.protocol.wire.events import CancelChange, MoveTasks, Rescale, StartFailed, TaskRequest, TaskStarted, Tick
from dpa.protocol.wire.instructions import Answer, CancelStart, StartTasks, StopTasks
from dpa.protocol.wire.messages.members import ChangeMembers, Leave, Left, MembersChanged, Unsubscribe, Unsubscribed
from dpa.protocol.wire.metrics import TaskChange
from dpa.routing import MOST_TASKS
from dpa.routing.members import MemberChange


class MembershipState(State):
    """The steps of a change."""

    IDLE = "idle"
    STARTING = "starting tasks"
    CANCELLING = "cancelling the start of tasks"
    CHANGING = "changing tables"
    ENDING = "ending tasks"


_STEPS_KEPT = 256  # changes that are kept one by one, with the tasks that went by them; of those before, sums are kept
_NOT_UP = (MembershipState.STARTING, MembershipState.CANCELLING)
_UP = tuple(state for state in MembershipState if state not in _NOT_UP)
_CANCELLED = "it was cancelled"


@dataclass(frozen=True)
class _Change:
    """What is under way: the request, its stage, who comes and goes, and when it began."""

    request: TaskRequest
    stage: StageProgress
    members: MemberChange
    began: float

    @property
    def coming(self) -> tuple[Address, ...]:
        return tuple(Address(self.stage.name, index) for index in self.members.coming)

    @property
    def going(self) -> frozenset[Address]:
        return frozenset(Address(self.stage.name, index) for index in self.members.going)


class Membership(RuledMachine):
    """Requests are carried out in order of arrival. Each gets an answer once it is done or refused."""

    def __init__(
        self,
        coordinator: Machine,
        stages: Mapping[str, StageProgress],
        changed: Callable[[TaskChange], None],
        abandoned: Callable[[TaskRequest, float], None],
        waits: Callable[[], bool],
    ) -> None:
        """`changed` is called with each change that was carried out, `abandoned` with each request whose tasks did not
        start; `waits`: whether no change may begin now."""
        super().__init__(MembershipState.IDLE)
        self._changed = changed
        self._abandoned = abandoned
        self._waits = waits
        self.steps: deque[TaskChange] = deque()
        self.begun = self._carried_out = 0
        self._coordinator = coordinator
        self._stages = stages
        self._requests: deque[TaskRequest] = deque()
        self._change: _Change | None = None
        self._awaited: set[Address] = set()
        self._reports: dict[Address, int] = {}  # to the load balancer, of each task that has left
        self._is_published = False
        self._why_cancelled = ""
        self._cancels: list[CancelChange] = []  # that wait until it is known whether they came in time

    def ask(self, request: TaskRequest) -> None:
        """Carry out a request after those before it. One that changes nothing is answered at once, unless another of
        its stage comes first."""
        is_first = not self._changes(request.stage) and not self._waiting(request.stage)
        answer = without_change(request, self._stages) if is_first else None
        if answer is not None:
            self._coordinator.instruct(answer)
            return
        self._requests.append(request)

    def _asked(self, sender: Address, request: TaskRequest) -> None:
        self.ask(request)

    def _cancel(self, sender: Address, cancel: CancelChange) -> None:
        waiting = self._waiting(cancel.stage)
        self._refuse(waiting, _CANCELLED)
        if waiting:
            several = f"{len(waiting)} changes" if len(waiting) > 1 else "a change"
            self._answer(cancel, f"{several} of {cancel.stage} that waited will not begin")
        elif self._changes(cancel.stage):
            self._answer(cancel, self._too_late, refused=True)
        elif cancel.stage not in self._stages:
            self._answer(cancel, unknown(cancel.stage, self._stages), refused=True)
        else:
            self._answer(cancel, f"no change of the tasks of {cancel.stage} waits or is under way", refused=True)

    def _cancel_not_up(self, sender: Address, cancel: CancelChange) -> State | None:
        if not self._changes(cancel.stage):
            self._cancel(sender, cancel)
            return None
        self._refuse(self._waiting(cancel.stage), _CANCELLED)
        self._cancels.append(cancel)
        return self._cancel_start(_CANCELLED) if self.state is MembershipState.STARTING else None

    def settle(self) -> None:
        """Make no change of a stage that has nothing left to process, and go on."""
        for name in dict.fromkeys(request.stage for request in self._requests):
            stage = self._stages.get(name)
            if stage is not None and stage.has_nothing_left:
                self._refuse(self._waiting(name), stage.why_over)
        self.advance()

    def _cancel_if_over(self) -> State | None:
        stage = self._current.stage
        return self._cancel_start(stage.why_over) if stage.has_nothing_left else None

    @property
    def is_idle(self) -> bool:
        return not self.is_under_way and not self._requests

    @property
    def is_under_way(self) -> bool:
        return self._change is not None

    @property
    def can_begin(self) -> bool:
        return bool(self._requests)

    @property
    def requests(self) -> list[TaskRequest]:
        begun = [] if self._change is None else [self._change.request]
        return [*begun, *self._requests]

    def _next(self) -> State | None:
        while self._requests and not self._waits():
            request = self._requests.popleft()
            answer = without_change(request, self._stages)
            if answer is None:
                return self._begin(request)
            self._coordinator.instruct(answer)
        return None

    def end(self, why: str) -> None:
        if self._change is not None:
            self._answer(self._change.request, why, refused=True)
        for cancel in self._cancels:
            self._answer(cancel, why, refused=True)
        while self._requests:
            self._answer(self._requests.popleft(), why, refused=True)

    def _changes(self, stage: str) -> bool:
        return self._change is not None and self._change.stage.name == stage

    def _waiting(self, stage: str) -> list[TaskRequest]:
        return [request for request in self._requests if request.stage == stage]

    def _refuse(self, waiting: Collection[TaskRequest], why: str) -> None:
        for request in waiting:
            self._answer(request, f"nothing was changed: {why}", refused=True)
        self._requests = deque(request for request in self._requests if request not in waiting)

    def _cancel_start(self, why: str) -> State:
        self._why_cancelled = why
        self._coordinator.instruct(CancelStart(self._current.coming))
        return MembershipState.CANCELLING

    def _begin(self, request: TaskRequest) -> State:
        stage = self._stages[request.stage]
        change = stage.roster.change_for(request)
        self.begun += 1
        self._change = _Change(request, stage, change, self._coordinator.now)
        self._is_published = False
        stage.begin_change(change)
        coming = self._change.coming
        if not coming:
            return self._publish()
        self._awaited = set(coming)
        nodes = tuple(
            request.nodes[turn % len(request.nodes)] if request.nodes else None for turn in range(len(coming))
        )
        self._coordinator.instruct(StartTasks(coming, nodes))
        return MembershipState.STARTING

    def _started(self, sender: Address, event: TaskStarted) -> State | None:
        self._awaited.discard(event.address)
        return None if self._awaited else self._publish()

    def _not_started(self, sender: Address, event: StartFailed) -> State:
        change, self._change = self._current, None
        is_over = change.stage.has_nothing_left
        change.stage.end_change(is_abandoned=True)
        self._answer(change.request, f"nothing was changed: {self._why_cancelled or event.reason}", refused=True)
        self._answer_cancels(f"the change of {change.stage.name} is cancelled")
        if not is_over:
            self._abandoned(change.request, self._coordinator.now)
        return MembershipState.IDLE

    def _answer_cancels(self, text: str, *, refused: bool = False) -> None:
        for cancel in self._cancels:
            self._answer(cancel, text, refused=refused)
        self._cancels.clear()
        self._why_cancelled = ""

    @property
    def _too_late(self) -> str:
        return f"too late: the new tasks of {self._current.stage.name} take part, so the change ends soon by itself"

    def _publish(self) -> State:
        change = self._current
        self._answer_cancels(self._too_late, refused=True)
        self._awaited = set(change.going)
        change.stage.all_up()
        if change.stage.is_source:
            for task in sorted(change.going):
                self._coordinator.send(task, Leave())
        self._coordinator.send(BALANCER, ChangeMembers(change.stage.name, change.members, change.stage.time.closed))
        return MembershipState.CHANGING

    def _published(self, sender: Address, message: MembersChanged) -> None:
        self._is_published = True

    def _left(self, sender: Address, message: Left) -> None:
        self._current.stage.left(message)
        self._awaited.discard(sender)
        self._reports[sender] = message.reports

    def _unsubscribe(self) -> State | None:
        if not self._is_published or self._awaited:
            return None
        self._awaited = set(self._current.going)
        for task in sorted(self._awaited):
            self._coordinator.send(BALANCER, Unsubscribe(task, self._reports.pop(task, 0)))
        return MembershipState.ENDING

    def _unsubscribed(self, sender: Address, message: Unsubscribed) -> None:
        self._awaited.discard(message.task)

    def _end_if_over(self) -> State | None:
        if self._awaited:
            return None
        change, self._change = self._current, None
        if change.going:
            present = Present(change.stage.name, tuple(change.stage.roster.members), change.stage.roster.next)
            self._coordinator.instruct(StopTasks(tuple(sorted(change.going)), present))
        seconds = self._coordinator.now - change.began
        self._carried_out += 1
        step = TaskChange(
            number=self._carried_out,
            at=change.began,
            stage=change.stage.name,
            started=change.members.coming,
            stopped=tuple(sorted(change.members.going)),
            moved=change.members.replaces,
            seconds=seconds,
            reason=change.request.reason,
        )
        self.steps.append(step)
        if len(self.steps) > _STEPS_KEPT:
            oldest = self.steps.popleft()
            self._stages[oldest.stage].roster.forget(oldest.stopped)
        change.stage.end_change()
        self._answer(change.request, step.in_words(len(change.stage.roster.members)))
        self._changed(step)
        return MembershipState.IDLE

    def _answer(self, request: TaskRequest | CancelChange, text: str, *, refused: bool = False) -> None:
        self._coordinator.instruct(Answer(request.request, text, refused))

    @property
    def _current(self) -> _Change:
        assert self._change is not None
        return self._change

    RULES: ClassVar[tuple[Rule, ...]] = (
        *on_each((Rescale, MoveTasks), MembershipState, _asked, "carry out in turn"),
        on(CancelChange, _UP, _cancel, "drop the stage's waiting requests"),
        on(
            CancelChange,
            MembershipState.STARTING,
            _cancel_not_up,
            "drop the stage's waiting requests, and stop starting tasks",
            (None, MembershipState.CANCELLING),
        ),
        on(CancelChange, MembershipState.CANCELLING, _cancel_not_up, "drop the stage's waiting requests"),
        on(Tick, MembershipState, RuledMachine._ignore, "ignore"),
        on(TaskStarted, _NOT_UP, _started, "after the last one, make them members", (None, MembershipState.CHANGING)),
        on(StartFailed, _NOT_UP, _not_started, "refuse", MembershipState.IDLE),
        on(MembersChanged, MembershipState.CHANGING, _published, "note"),
        on(Left, MembershipState.CHANGING, _left, "note"),
        on(Unsubscribed, MembershipState.ENDING, _unsubscribed, "note"),
        when(
            MembershipState.IDLE,
            _next,
            "begin the next request",
            (None, MembershipState.STARTING, MembershipState.CHANGING),
        ),
        when(MembershipState.STARTING, _cancel_if_over, "cancel if all is done", (None, MembershipState.CANCELLING)),
        when(MembershipState.CHANGING, _unsubscribe, "end tasks that have left", (None, MembershipState.ENDING)),
        when(MembershipState.ENDING, _end_if_over, "stop them when no task waits", (None, MembershipState.IDLE)),
    )


def without_change(request: TaskRequest, stages: Mapping[str, StageProgress]) -> Answer | None:
    stage = stages.get(request.stage)
    if stage is not None and isinstance(request, Rescale) and request.tasks == len(stage.roster.members):
        return Answer(request.request, f"{stage.name} has {plural(request.tasks, 'task')} already")
    why = unknown(request.stage, stages) if stage is None else _why_not(request, stage)
    return None if why is None else Answer(request.request, why, refused=True)


def unknown(stage: str, stages: Iterable[str]) -> str:
    return f"there is no stage {stage!r}; the stages are {', '.join(stages)}"


def _why_not(request: TaskRequest, stage: StageProgress) -> str | None:
    if stage.spec.why_fixed is not None:
        return f"the tasks of {stage.name} stay: {stage.spec.why_fixed}"
    if stage.has_nothing_left:
        return f"nothing was changed: {stage.why_over}"
    if isinstance(request, Rescale):
        if request.tasks > 1 and stage.spec.why_one is not None:
            return f"{stage.name} keeps its one task: {stage.spec.why_one}"
        within = 1 <= request.tasks <= MOST_TASKS
        return None if within else f"{stage.name} can have 1 to {MOST_TASKS} tasks, not {request.tasks}"
    twice = sorted(task for task, times in Counter(request.tasks).items() if times > 1)
    if twice:
        return f"{stage.name} {twice[0]} is named more than once"
    missing = sorted(set(request.tasks) - set(stage.roster.members))
    if missing or not request.tasks:
        there = ", ".join(map(str, sorted(stage.roster.members)))
        return f"{stage.name} has no task {', '.join(map(str, missing))}; it has {there}"
    return None
