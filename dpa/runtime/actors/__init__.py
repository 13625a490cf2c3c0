"""The processes of a job: each is a Ray actor, which is one task after the other; a task hosts a state machine.

`coordinator`, `relay` > `actor`                         actors, thin switches
`_coordinating`, `_task` > `_shell` > a machine          tasks, and what drives a machine
`_trials`, `_process`; `_starting`, `answers` what a stage's task has, and what the coordinator has
"""
