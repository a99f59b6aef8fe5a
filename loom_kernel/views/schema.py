"""The snapshot's contract for other languages: JSON Schema, and the TypeScript types made from it.

``python -m loom_kernel.views.schema`` prints the schema, with ``--typescript`` the types, which live in
``labextension/src/generated/views.ts``; a test compares the two.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from loom_kernel.views.detail import DetailShot
from loom_kernel.views.finding import FoundShot
from loom_kernel.views.live import DeltaShot
from loom_kernel.views.snapshot import Snapshot
from loom_kernel.views.times import TimesShot


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the snapshot and of a node's detail, shared parts under ``$defs``."""
    refs, defs = msgspec.json.schema_components(
        [Snapshot, DeltaShot, DetailShot, FoundShot, TimesShot], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "loom-kernel run view",
        "oneOf": list(refs),
        "$defs": dict(sorted(defs.items())),
    }


def typescript() -> str:
    """The same as TypeScript interfaces."""
    parts = ["// Made from loom_kernel/views by `python -m loom_kernel.views.schema --typescript`. Do not edit.\n"]
    for name, schema in json_schema()["$defs"].items():
        parts.append(_interface(name, schema))
    return "\n".join(parts)


def _interface(name: str, schema: dict[str, Any]) -> str:
    # msgspec writes every field of a struct that is not `omit_defaults`; those of these may be left out.
    always = name not in ("Shown", "DeltaShot")
    required = set(schema.get("required", []))
    lines = [f"export interface {name} {{"]
    for field, spec in schema["properties"].items():
        optional = "" if always or field in required else "?"
        lines.append(f"  {field}{optional}: {_type(spec)};")
    return "\n".join([*lines, "}\n"])


def _type(spec: dict[str, Any]) -> str:
    if "$ref" in spec:
        return spec["$ref"].rpartition("/")[2]
    if "anyOf" in spec:
        return " | ".join(_type(s) for s in spec["anyOf"])
    match spec.get("type"):
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array" if "prefixItems" in spec:
            return f"[{', '.join(map(_type, spec['prefixItems']))}]"
        case "array":
            inner = _type(spec.get("items", {}))
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case "object":
            return "Record<string, unknown>"
        case _:
            return "unknown"


if __name__ == "__main__":
    if "--typescript" in sys.argv[1:]:
        sys.stdout.write(typescript())
    else:
        print(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())
