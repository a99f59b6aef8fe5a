"""What docs/coverage.md promises can be looked up: every test that it names is there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from loom_kernel.authoring.storage import StorageAccess
from loom_kernel.journal import RunJournal

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "coverage.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path: str, name: str) -> None:
    """As a function, or as the class that inherits a suite."""
    text = (ROOT / path).read_text()
    assert re.search(rf"^\s*(?:async )?def {name}\(|^class {name}\(", text, re.MULTILINE), f"{path} has no {name}"


@pytest.mark.parametrize("interface", [RunJournal, StorageAccess])
def test_every_method_of_the_contracts_is_on_the_page(interface: type) -> None:
    """A method that is added to an interface is to be shown by a test, too."""
    ours = {
        "start_run",
        "post",
        "subscribe",
        "query",
        "put_blobs",
        "get_blob",
        "claim",
        "keep",
        "collect",
        "gc",
        "export",
    }
    for name, member in vars(interface).items():
        if not name.startswith("_") and inspect.isfunction(member) and name not in ours:
            camel = re.sub(r"_(\w)", lambda found: found[1].upper(), name)
            assert f"`{name}" in PAGE or f"`{camel}`" in PAGE, name


def test_every_row_names_a_test() -> None:
    """No promise without one."""
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| name", "| item", "| ---"))
    ]
    assert len(rows) > 50
    for row in rows:
        assert re.search(r"`[\w/]+\.py::\w+` \|$", row), row
