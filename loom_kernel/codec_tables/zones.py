"""Time zones as JSON and back."""

from __future__ import annotations

import datetime as dt
import importlib
import zoneinfo
from typing import Any

from loom_kernel.codec_tables.refusal import Refused, type_name


def zone(value: dt.tzinfo | None) -> Any:
    """A time zone as JSON: None, ``"utc"``, ``{"zone": key}`` or ``{"offset": seconds, "name": ...}``."""
    if value is None:
        return None
    if value is dt.UTC:
        return "utc"
    if type(value) is zoneinfo.ZoneInfo and value.key:
        return {"zone": value.key}
    if type(value) is dt.timezone:
        offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
        return {"offset": offset.total_seconds(), "name": name[0] if name else None}
    module = type(value).__module__
    if module.startswith("dateutil") and type(value).__name__ == "tzutc":
        return "dateutil.utc"
    if module.startswith("pytz") and isinstance(key := getattr(value, "zone", None), str):
        return {"pytz": key}
    raise Refused(f"time zone ({type_name(value)})", "Use zoneinfo.ZoneInfo or datetime.timezone.")


def read_zone(value: Any) -> dt.tzinfo | None:
    if value is None:
        return None
    if value == "utc":
        return dt.UTC
    if value == "dateutil.utc":
        try:
            from dateutil.tz import tzutc
        except ImportError:
            return dt.UTC
        return tzutc()
    if "zone" in value:
        return zoneinfo.ZoneInfo(value["zone"])
    if "pytz" in value:
        named: dt.tzinfo = importlib.import_module("pytz").timezone(value["pytz"])
        return named
    offset = dt.timedelta(seconds=value["offset"])
    return dt.timezone(offset) if value["name"] is None else dt.timezone(offset, value["name"])
