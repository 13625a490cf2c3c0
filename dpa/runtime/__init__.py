"""The state machines on Ray: actors that carry out instructions, and the driver's side of a run. Decides nothing.

The driver:       `backend` > `launch` > `_kept_processes`, `_machines`
From elsewhere:   `named_jobs`, `detached`
An actor:         `_coordinator_actor`, `_relay_actor` > `_actors` > `_task`, `_coordinating` > `_shell` > a machine
Beside a machine: `_trials`, `_process`; of a coordinator `_starting`, `_asides`, `_answers`
Ray itself:       `cluster` > `ray_internals`
"""
