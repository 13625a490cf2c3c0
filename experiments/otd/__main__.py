"""`python -m experiments.otd`: placements that follow the load while a job runs, in virtual time."""

from __future__ import annotations

import argparse

from experiments.harness import main
from experiments.otd import virtual_page

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.otd", description=__doc__)
    main("otd", parser, virtual_page.measure)
