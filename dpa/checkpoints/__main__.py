"""`python -m dpa.checkpoints` is `dpa._checkpoints`, which may import more than this package."""

from runpy import run_module

run_module("dpa._checkpoints", run_name="__main__")
