"""`python -m dpa` is the command `dpa`."""

from dpa.command import app

if __name__ == "__main__":
    app()
