"""The documentation says what is there: its queries run, its columns exist, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import loom_kernel

ROOT = Path(__file__).resolve().parent.parent
SQL_PAGE = (ROOT / "docs" / "sql.md").read_text()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "notebooks").rglob("*.md")]


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", SQL_PAGE, re.DOTALL))
def test_worked_questions_run(project: Path, query: str) -> None:
    """Every question of the SQL page can be asked, in a folder where nothing has run yet too."""
    assert loom_kernel.sql(query).fetchall() == []


@pytest.mark.parametrize(("view", "section"), re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", SQL_PAGE, re.DOTALL | re.M))
def test_columns_are_as_documented(project: Path, view: str, section: str) -> None:
    """Each view has the documented columns, of the documented types, in that order; more may follow."""
    documented = re.findall(r"^\| `(\w+)` \| ([\w\[\]]+) \|", section, re.MULTILINE)
    relation = loom_kernel.sql(f"select * from {view}")
    short = {"timestamp with time zone": "timestamptz"}
    found = [
        (name, short.get(str(kind).lower(), str(kind).lower()))
        for name, kind in zip(relation.columns, relation.types, strict=True)
    ]
    assert found[: len(documented)] == documented


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of the project has that file at its end."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
