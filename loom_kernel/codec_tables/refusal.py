"""How a refusal finds its path: raised bare deep in a value, each container adds its own step on the way out."""

from __future__ import annotations


class Refused(Exception):
    """A part of a value cannot be kept or hashed; becomes a public error with the whole path at the outside."""

    def __init__(self, kind: str, hint: str) -> None:
        super().__init__(kind, hint)
        self.kind, self.hint = kind, hint
        self.steps: list[str] = []

    def at(self, step: str) -> Refused:
        """The same refusal, one container further out."""
        self.steps.append(step)
        return self

    def path(self, root: str) -> str:
        return root + "".join(reversed(self.steps))


def type_name(value: object) -> str:
    """A type's name as people know it: ``sqlite3.Connection``, ``int``, ``Digest`` (of the notebook)."""
    cls = type(value)
    module = cls.__module__
    return cls.__qualname__ if module in ("builtins", "__main__") else f"{module.split('.')[0]}.{cls.__qualname__}"
