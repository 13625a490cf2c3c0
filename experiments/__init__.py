"""The project's measurements, one a module: `python -m experiments.NAME` writes
`experiments/results/NAME.{json,md,png}`."""
