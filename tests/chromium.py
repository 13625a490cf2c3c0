"""Debian's Chromium without a window, driven by Playwright, whose own browsers are not needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis_server import program

from experiments.looked import OPTIONS, chromium_path


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright, for as long as the block. The test is skipped where there is none, as of `program`."""
    from playwright.sync_api import sync_playwright

    path = chromium_path() or program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()
