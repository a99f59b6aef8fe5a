"""One model's process, from the side of those who ask it: started when first needed, started again when it died."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from loom_kernel.errors import LoomError

START_S = 120.0

MISSING = "local models need xllamacpp: pip install 'loom-kernel[local]'"


class SidecarError(LoomError):
    """The process of a local model does not work; one sentence."""


@dataclass(frozen=True)
class Address:
    """Where it serves, and the key that it takes."""

    url: str
    key: str
    pid: int


def threads() -> int:
    """Half of the processors: two on two busy ones are slower than one."""
    if os.environ.get("CI") or os.environ.get("LOOM_TEST"):
        return 1
    return max(1, (os.cpu_count() or 2) // 2)


class Sidecar:
    """The process of one model file. One loop uses it.

    Args:
        model: the file.
        context: tokens of a conversation.
    """

    def __init__(self, model: Path, context: int) -> None:
        self.model, self.context = model, context
        self._process: asyncio.subprocess.Process | None = None
        self._address: Address | None = None
        self._starting = asyncio.Lock()
        self._log: IO[bytes] | None = None

    async def address(self) -> Address:
        """Its address; starts it where it does not run.

        Raises:
            SidecarError: it does not start; says why.
        """
        async with self._starting:
            if self._address is None or self._process is None or self._process.returncode is not None:
                self._address = await self._start()
            return self._address

    async def _start(self) -> Address:
        if importlib.util.find_spec("xllamacpp") is None:
            raise SidecarError(MISSING)
        key = secrets.token_urlsafe(24)
        environment = {
            **{
                k: v
                for k, v in os.environ.items()
                if k in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "LOOM_LOCAL_IDLE_S")
            },
            "LOOM_LOCAL_KEY": key,
            "LOOM_LOCAL_CONTEXT": str(self.context),
            "LOOM_LOCAL_THREADS": str(threads()),
        }
        await self.close()
        self._log = tempfile.TemporaryFile(prefix="loom-local-")  # noqa: SIM115 - lives as long as the process
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("server.py")),
            str(self.model),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,  # an interrupt of the kernel does not reach it
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            await self.close()
            raise SidecarError(f"the model {self.model.name} did not start within {START_S:g} s") from None
        except BaseException:
            await self.close()
            raise
        if not line:
            await self._process.wait()
            why = self._last_words()
            await self.close()
            raise SidecarError(f"the model {self.model.name} did not start: {why}")
        told = json.loads(line)
        return Address(url=told["url"], key=key, pid=told["pid"])

    def _last_words(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it gave no reason"

    async def close(self) -> None:
        """End it."""
        if self._process is not None:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    async def gone(self) -> None:
        """Somebody found that nobody serves there: the next call starts it anew."""
        async with self._starting:
            await self.close()
            self._address = None
