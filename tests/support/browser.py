"""The system's Chromium, controlled by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

START_MILLISECONDS = 120_000  # a busy machine may take long
NAMES = ("chromium", "chromium-browser", "google-chrome")


class NoBrowser(Exception):
    """Raised if no supported browser is installed."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser for a block."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoBrowser(f"no browser: none of {', '.join(NAMES)} is installed")
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox is not available to root, which containers run as.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments, timeout=START_MILLISECONDS)
        try:
            yield browser
        finally:
            browser.close()


def signed_in(browser: Any, key: str, width: int = 1280, height: int = 800, scheme: str = "light") -> Any:
    """Open a tab whose session has a key."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.add_init_script(f"sessionStorage.setItem('flowcast.key', '{key}')")
    return context.new_page()
