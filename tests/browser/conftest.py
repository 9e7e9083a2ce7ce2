"""A JupyterLab server and a headless Chromium for the browser test; run by `make browser`, and never by `make test`."""

import os
import shutil

import pytest
from lab import serve

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def pytest_addoption(parser):
    group = parser.getgroup("browser")
    group.addoption("--chromium", help="the program (default: the first of " + ", ".join(NAMES) + " on the PATH)")
    group.addoption("--chapter-timeout", type=float, default=1800, help="seconds for a chapter's cells (default: 1800)")
    group.addoption("--widget-timeout", type=float, default=20, help="seconds for a widget's answer (default: 20)")


@pytest.fixture(scope="session")
def chromium(request):
    """A running browser."""
    program = request.config.getoption("chromium") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(NAMES)} is on the PATH; install Chromium, or name it with --chromium")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[browser]")
    with api.sync_playwright() as playwright:
        root = hasattr(os, "geteuid") and os.geteuid() == 0  # Chromium refuses to run as root inside its sandbox
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=not root)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(chromium, tmp_path_factory):
    """JupyterLab on an empty folder: no reader's settings, and nothing left behind."""
    with serve(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def screenshots(request):
    """Where the pictures go; those of an earlier run are kept until their chapter is taken again."""
    folder = request.config.rootpath / "browser-screenshots"
    folder.mkdir(exist_ok=True)
    return folder
