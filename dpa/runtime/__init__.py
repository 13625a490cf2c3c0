"""The state machines on Ray: actors that carry out instructions, and the driver's side of a run. Decides nothing.

The driver:     `backend` > `launch` > `_processes`, `_machines` > `actors` From elsewhere: `detached` Ray itself:
`cluster` > `ray_internals`"""
