"""Accounts of providers beside the usual one: ``openai-1/gpt-5-mini`` is ``openai/gpt-5-mini`` with other credentials.

They share their provider's catalogue and prices. ``[accounts.openai-1]`` in ``loom.toml`` says where the key is
(``api_key_env``, ``OPENAI_1_API_KEY`` where nothing is said) and, where it is another one, the address (``api_base``).
An entry under the provider's own name, ``[accounts.openai]``, is for the usual account. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from loom_kernel.errors import SettingsError

FIELDS = ("api_key_env", "api_base")


class Asked(NamedTuple):
    """A model's name taken apart. ``account`` is None where the name is that of a usual account."""

    model: str
    account: str | None


def asked(name: str) -> Asked:
    """The model without its account's number."""
    provider, slash, rest = name.partition("/")
    source, dash, number = provider.rpartition("-")
    if slash and dash and source and number.isdecimal():
        return Asked(f"{source}/{rest}", provider)
    return Asked(name, None)


def variable(account: str, accounts: Mapping[str, Mapping[str, Any]]) -> str:
    """The environment variable that holds the key of a numbered account."""
    said = accounts.get(account, {}).get("api_key_env")
    return str(said) if said else f"{account.upper().replace('-', '_')}_API_KEY"


def check(accounts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The table ``accounts`` of the settings.

    Raises:
        SettingsError: an entry is no table, or has a field that does not exist; a key itself is never one of them.
    """
    for name, entry in accounts.items():
        if not isinstance(entry, Mapping):
            raise SettingsError(f"[accounts] in loom.toml: {name} is a table of {', '.join(FIELDS)}, not {entry!r}")
        unknown = sorted(set(entry) - set(FIELDS))
        if unknown:
            raise SettingsError(
                f"[accounts.{name}] in loom.toml: {unknown[0]!r} is not known; there are: {', '.join(FIELDS)}. "
                "A key stands in the environment, and api_key_env names its variable"
            )
    return {name: dict(entry) for name, entry in accounts.items()}
