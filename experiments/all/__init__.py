"""All measurements one after another, resumed where they were interrupted: `python -m experiments.all`."""
