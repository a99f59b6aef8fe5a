"""A real JupyterLab with a real browser on it, driven from tests.

::

    with Lab(folder) as lab:
        write_notebook(folder / "a.ipynb", ["1 + 1"])
        with lab.open("a.ipynb", chromium) as page:
            page.run(0)
            assert page.text(0) == "2"

JupyterLab is driven through its commands, never through the keyboard: the page exposes ``window.jupyterapp``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import psutil
from playwright.sync_api import Locator, sync_playwright

CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",  # root has no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
QUIET = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}

_CURRENT = "jupyterapp.shell.currentWidget"
_CELL = f"{_CURRENT}.content.widgets[i]"


def write_notebook(path: Path, cells: Iterable[str]) -> Path:
    """Write a notebook of code cells; a text that starts with ``md:`` makes a Markdown cell. Cells are named c0, c1, ..."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for index, text in enumerate(cells):
        make = nbformat.v4.new_markdown_cell if text.startswith("md:") else nbformat.v4.new_code_cell
        cell = make(text.removeprefix("md:"))
        cell["id"] = f"c{index}"
        notebook.cells.append(cell)
    nbformat.write(notebook, path)
    return path


class Lab:
    """A JupyterLab server of its own over ``root``, with every folder of its configuration private to it.

    Args:
        root: the folder that the person works in.
        settings: user settings, by plugin.
        env: more variables for the server, and so for its kernels.
    """

    def __init__(
        self, root: Path, *, settings: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.root = root
        self.private = root.parent / f"{root.name}-jupyter"
        self.token = uuid.uuid4().hex
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.base = f"http://127.0.0.1:{port}"
        for plugin, value in {**QUIET, **(settings or {})}.items():
            path = self.private / "settings" / (plugin.replace(":", "/") + ".jupyterlab-settings")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(value))
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        self._env = {**os.environ, **{name: str(self.private / folder) for name, folder in folders.items()}}
        self._env.update({"PYDEVD_DISABLE_FILE_VALIDATION": "1", "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"})
        self._env.update(env or {})
        self._command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
        self._command += [f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={root}"]
        self._command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
        self._command += ["--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, patience_s: float = 60.0) -> Lab:
        """Start the server and return when it answers.

        Raises:
            RuntimeError: it did not; the message holds the end of its log.
        """
        self.private.mkdir(parents=True, exist_ok=True)
        with (self.private / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.root, env=self._env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        end = time.monotonic() + patience_s
        while time.monotonic() < end and self._process.poll() is None:
            try:
                self.get("/api/status")
                return self
            except OSError:
                time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log()[-3000:]}")

    def stop(self) -> None:
        """Ask the server to stop with its kernels, then insist."""
        if self._process is None:
            return
        try:
            self.request("POST", "/api/shutdown")
        except OSError:
            pass
        for end in (lambda: None, self._process.terminate, self._process.kill):
            end()
            try:
                self._process.wait(10)
                break
            except subprocess.TimeoutExpired:
                continue
        self._process = None

    def log(self) -> str:
        """What the server has written so far."""
        return (self.private / "server.log").read_text(errors="replace")

    def request(self, method: str, path: str, body: bytes | None = b"") -> bytes:
        """One call of the server's API."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(self.base + path, data=body, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=15) as response:
            return response.read()

    def get(self, path: str) -> Any:
        """A GET of the server's API, parsed."""
        return json.loads(self.request("GET", path, None))

    def kernels(self) -> list[dict[str, Any]]:
        """The kernels that the server runs."""
        return self.get("/api/kernels")

    def interrupt(self) -> None:
        """Interrupt the only kernel, as the stop button does."""
        (kernel,) = self.kernels()
        self.request("POST", f"/api/kernels/{kernel['id']}/interrupt")

    def kill_kernel(self) -> int:
        """SIGKILL the only kernel, as the kernel's memory limit or a power cut would; its process id."""
        assert self._process is not None
        family = psutil.Process(self._process.pid).children(recursive=True)
        (kernel,) = [each for each in family if "ipykernel_launcher" in " ".join(each.cmdline())]
        kernel.kill()
        return kernel.pid

    def open(self, notebook: str, chromium: str, **options: Any) -> Page:
        """A browser with this notebook open and its kernel idle."""
        return Page(self, chromium, **options).open(notebook)

    def __enter__(self) -> Lab:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


class Page:
    """One notebook in one browser tab.

    Args:
        lab: the server.
        chromium: the browser's path.
        width, height: size of the window in pixels.
        theme: ``"light"`` or ``"dark"``.
    """

    def __init__(self, lab: Lab, chromium: str, *, width: int = 1200, height: int = 1000, theme: str = "light") -> None:
        self.lab = lab
        self.console: list[str] = []
        self._dark = theme == "dark"
        self._playwright = sync_playwright().start()
        try:
            self._browser = self._playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
            self.tab = self._browser.new_context(viewport={"width": width, "height": height}).new_page()
        except BaseException:
            self._playwright.stop()
            raise
        self.tab.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self.console.append(f"pageerror: {error}"))

    def open(self, notebook: str, *, patience_s: float = 90.0) -> Page:
        """Load the notebook and wait until its kernel is idle. A second call is a reload."""
        self.tab.goto(f"{self.lab.base}/lab/tree/{notebook}?reset&token={self.lab.token}", timeout=patience_s * 1000)
        self.tab.wait_for_function(
            f"() => window.jupyterapp && {_CURRENT} && {_CURRENT}.context && {_CURRENT}.content.widgets",
            timeout=patience_s * 1000,
        )
        self.tab.evaluate(f"async () => {{ await {_CURRENT}.context.ready; await {_CURRENT}.revealed; }}")
        self.wait_idle(patience_s)
        if self._dark:
            self.command("apputils:change-theme", theme="JupyterLab Dark")
        # Room for the notebook: the file browser says nothing here.
        self.command("application:toggle-left-area")
        return self

    # -- kernel

    def status(self) -> str:
        """The kernel's status, as the page knows it."""
        return self.tab.evaluate(
            f"() => {{ const s = {_CURRENT}.context.sessionContext;"
            " return s.session && s.session.kernel ? s.session.kernel.status : 'none'; }"
        )

    def wait_idle(self, patience_s: float = 60.0) -> None:
        """Wait until the kernel is idle."""
        self.tab.wait_for_function(
            f"() => {{ const s = {_CURRENT}.context.sessionContext;"
            " return s.session && s.session.kernel && s.session.kernel.status === 'idle'; }",
            timeout=patience_s * 1000,
        )

    def dismiss(self) -> None:
        """Close the dialogs that are open, such as the one after a kernel died."""
        while (button := self.tab.locator(".jp-Dialog .jp-mod-accept")).count():
            button.first.click()

    def restart(self) -> None:
        """Restart the kernel, without asking."""
        self.tab.evaluate(f"async () => {{ await {_CURRENT}.context.sessionContext.session.kernel.restart(); }}")
        self.wait_idle()

    # -- cells

    def start(self, index: int) -> None:
        """Run a cell, without waiting for it."""
        self.tab.evaluate(
            f"""i => {{
              const notebook = {_CURRENT}.content;
              notebook.activeCellIndex = i; notebook.deselectAll();
              window.__runs = window.__runs || {{}};
              const run = window.__runs[i] = {{ done: false, from: Date.now() }};
              jupyterapp.commands.execute('notebook:run-cell').then(() => {{ run.done = true; run.to = Date.now(); }});
            }}""",
            index,
        )

    def done(self, index: int) -> bool:
        """Whether the cell that was started has ended."""
        return self.tab.evaluate("i => !!(window.__runs && window.__runs[i] && window.__runs[i].done)", index)

    def wait(self, index: int, patience_s: float = 30.0) -> float:
        """Wait for a cell that was started; the seconds that it took, as seen by the page."""
        self.tab.wait_for_function(
            "i => window.__runs && window.__runs[i] && window.__runs[i].done", arg=index, timeout=patience_s * 1000
        )
        return self.tab.evaluate("i => (window.__runs[i].to - window.__runs[i].from) / 1000", index)

    def run(self, index: int, patience_s: float = 60.0) -> float:
        """Run a cell to its end."""
        self.start(index)
        return self.wait(index, patience_s)

    def run_all(self) -> None:
        """Start all cells, without waiting for them."""
        self.tab.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells'); }")

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """A cell's outputs, as they would be saved."""
        return self.tab.evaluate(
            f"i => {{ const o = {_CELL}.model.outputs; return [...Array(o.length).keys()].map(k => o.get(k).toJSON()); }}",
            index,
        )

    def text(self, index: int) -> str:
        """The visible text of a cell's outputs."""
        return self.tab.evaluate(
            f"i => [...{_CELL}.node.querySelectorAll('.jp-OutputArea-output')].map(o => o.innerText).join('\\n')", index
        )

    def output(self, index: int) -> Locator:
        """A cell's output area, to look for elements in."""
        return self.tab.locator(f".jp-Notebook .jp-Cell[data-windowed-list-index='{index}'] .jp-Cell-outputArea")

    def error(self, index: int) -> str | None:
        """``"Name: text"`` of the error that a cell ended with."""
        for output in self.outputs(index):
            if output["output_type"] == "error":
                return f"{output['ename']}: {output['evalue']}"
        return None

    def until(self, expression: str, arg: Any = None, patience_s: float = 30.0) -> None:
        """Wait until a JavaScript function returns something true."""
        self.tab.wait_for_function(expression, arg=arg, timeout=patience_s * 1000)

    def until_text(self, index: int, text: str, patience_s: float = 30.0) -> None:
        """Wait until a cell's outputs show this text."""
        self.until(
            f"([i, text]) => [...{_CELL}.node.querySelectorAll('.jp-OutputArea-output')].some(o => o.innerText.includes(text))",
            [index, text],
            patience_s,
        )

    # -- the rest

    def command(self, name: str, **args: Any) -> None:
        """Execute one of JupyterLab's commands."""
        self.tab.evaluate("([n, a]) => jupyterapp.commands.execute(n, a).then(() => null)", [name, args])

    def save(self) -> None:
        """Save the notebook to its file."""
        self.tab.evaluate(f"async () => {{ await {_CURRENT}.context.save(); }}")

    def screenshot(self, path: Path, *, cell: int | None = None) -> Path:
        """A picture of the window, or of one cell's outputs."""
        target = self.tab if cell is None else self.output(cell)
        target.screenshot(path=str(path))
        return path

    def close(self) -> None:
        """Close the browser."""
        try:
            self._browser.close()
        finally:
            self._playwright.stop()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
