"""The result files as one page, `docs/results.md`, and as the table of the README: `python -m experiments.report`."""
