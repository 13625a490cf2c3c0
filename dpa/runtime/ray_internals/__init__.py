"""What reaches into Ray's private parts, all of it: a job's own Ray starts with few processes and forks its workers,
and questions for which Ray has no public call. A Ray that is built differently does without.

`_fork_server`, `_idle_agent` and `_forked_worker` are run as programs, in which nothing else of dpa may be imported
before they decide what they become."""
