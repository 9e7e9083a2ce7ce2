"""A JupyterLab server of its own: a free port, a token, an empty folder, and settings that no reader has changed."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Every cell stays attached to the page, so that it can be looked for and pictured; no news are fetched.
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@dataclass(frozen=True)
class Server:
    """Where the server is, and the folder it shows."""

    url: str
    token: str
    folder: Path

    def page(self, name: str) -> str:
        """The address of a notebook of the folder, opened as a document of JupyterLab."""
        return f"{self.url}/doc/tree/{name}?token={self.token}"


@contextmanager
def serve(place: Path, timeout: float = 300) -> Iterator[Server]:
    """Run JupyterLab with this interpreter below ``place`` until the block ends.

    Raises:
        RuntimeError: if it does not answer within ``timeout`` seconds; with the last of what it wrote.
    """
    folder, settings, log = place / "notebooks", place / "settings", place / "server.log"
    folder.mkdir()
    for name, values in SETTINGS.items():
        file = settings / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}", secrets.token_hex(16), folder)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--expose-app-in-browser", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={server.token}",
        f"--ServerApp.root_dir={folder}", f"--LabApp.user_settings_dir={settings}",
        f"--LabApp.workspaces_dir={place / 'workspaces'}", *(["--allow-root"] if os.name == "posix" else []),
    ]  # fmt: skip
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = {**os.environ, **{name: str(place / name.lower()) for name in own}}
    with open(log, "wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            _wait(server, process, log, timeout)
            yield server
        finally:
            process.terminate()  # on which the server ends its kernels


def _wait(server: Server, process: subprocess.Popen, log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{server.url}/api/status?token={server.token}", timeout=10).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise RuntimeError(f"JupyterLab did not answer:\n{log.read_text(errors='replace')[-3000:]}")
