"""The profile of a block's life gives each stack to the part that its innermost telling call is of."""

import pytest

from experiments.profile import NATIVE, VARIANTS, attributed, part_of

SHELL = ("/x/dpa/runtime/actors/_task.py:work", "/x/dpa/runtime/actors/_shell.py:_run_jobs")


@pytest.mark.parametrize(
    ("calls", "part"),
    [
        (["/x/pyarrow/parquet/core.py:iter_batches", "/x/dpa/sources/splits.py:_read"], "read"),
        (["/x/polars/lazyframe/frame.py:collect", "/x/dpa/execution/_queries.py:folded"], "read"),
        (["/home/me/jobs.py:words", "/x/dpa/execution/mapping.py:_map_records"], "row steps"),
        (["/x/dpa/routing/hashing.py:hash_column", "/x/dpa/execution/block.py:of"], "keys, hashes"),
        (["/x/dpa/execution/block.py:by_key", "/x/dpa/protocol/task/emitter.py:keep"], "emit, route"),
        (["/x/ray/cloudpickle/cloudpickle.py:dumps", "/x/dpa/runtime/actors/_pickled.py:of"], "send"),
        (["/x/dpa/runtime/actors/_pickled.py:opened"], "receive"),
        (["/x/dpa/execution/calls.py:fold", "/x/dpa/execution/receivers/_record.py:reduce"], "reduce"),
        (["/x/dpa/protocol/rules.py:dispatch"], "control"),
        (["<frozen importlib._bootstrap>:_find_and_load", "/x/dpa/runtime/actors/actor.py:become"], "start"),
        (["/lib/threading.py:wait"], "control"),
    ],
)
def test_a_stack_is_of_the_part_of_its_innermost_call_that_tells(calls: list[str], part: str) -> None:
    assert part_of([*calls, *(() if part == "start" else SHELL)]) == part


def test_what_no_python_thread_has_used_is_that_of_other_threads() -> None:
    stacks = [[["/x/dpa/sources/splits.py:_read"], 1.0], [SHELL, 0.5]]
    mapper = {"process": "ray::job mapper 0", "cpu": 3.0, "messages": {"Push": 2}, "stacks": stacks}
    balancer = {"process": "ray::job load balancer", "cpu": 1.0, "messages": {"Push": 1}, "stacks": []}
    server = {"process": "python", "cpu": 9.0, "messages": {}, "stacks": []}
    used, messages = attributed([mapper, balancer, server])
    assert used["mapper"] == {"read": 1.0, "control": 0.5, NATIVE: 1.5}
    assert used["others"] == {NATIVE: 1.0}
    assert messages == {"Push": 3}
    assert any("mapper" in sections for sections in VARIANTS.values()), "a mapper of a record is among the variants"
