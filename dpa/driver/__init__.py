"""The driver's side of a job: what is checked before anything starts, and the run from input to report.

A job:     `spec` > `_steps` > `_windows`, `_loading`; `outputs` > `_directories`
A run:     `run` > `_saved_run`, `inputs`, `_joins`, `_first_tables`, `_run_outputs`, `_progress`, `reference`,
           `summary`
Its tasks: `backend`, `placing`
Others:    `forecast`, `verification`, `going_back`, `control`, `interrupts`
"""

FIRST_ROWS = 100_000
"""Most rows of each input that a look at a flow takes, unless more are asked for."""
