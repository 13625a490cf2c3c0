"""Debian's Chromium without a window, driven by Playwright, whose own browsers are not needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis_server import program

# No service of Google's is asked for anything.
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
_FLAGS += ("--disable-component-update", "--disable-sync")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright, for as long as the block. The test is skipped where there is none, as of `program`."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium-browser") or program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*_FLAGS])
        try:
            yield browser
        finally:
            browser.close()
