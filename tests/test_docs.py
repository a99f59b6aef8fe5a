"""The documentation says what is there: its queries run, its columns exist, its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import loom_kernel
from loom_kernel.journal.duckdb_store import query_entries
from loom_kernel.journal.results import relation as relation_of
from loom_kernel.journal.sql_views import COLUMNS

ROOT = Path(__file__).resolve().parent.parent
SQL_PAGE = (ROOT / "docs" / "sql.md").read_text()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "notebooks").rglob("*.md")]


def ask(query: str) -> Any:
    """The answer of a journal without runs."""
    return relation_of(query_entries([], query, 30.0))


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", SQL_PAGE, re.DOTALL))
def test_worked_questions_run(query: str) -> None:
    """Every question of the SQL page can be asked, where nothing has run yet too."""
    assert ask(query).fetchall() == []


def test_the_first_question_can_be_asked_in_a_new_folder(project: Path) -> None:
    """From Python, through a hub that starts for it."""
    assert loom_kernel.sql(re.findall(r"```sql\n(.*?)```", SQL_PAGE, re.DOTALL)[0]).fetchall() == []


def test_every_view_is_documented() -> None:
    """With all of its columns and a question."""
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", SQL_PAGE, re.DOTALL | re.MULTILINE))
    for view, columns in COLUMNS.items():
        assert re.findall(r"^\| `(\w+)` \|", sections[view], re.MULTILINE) == list(columns)
        assert "```sql" in sections[view]


@pytest.mark.parametrize(("view", "section"), re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", SQL_PAGE, re.DOTALL | re.M))
def test_columns_are_as_documented(view: str, section: str) -> None:
    """Each view has the documented columns, of the documented types, in that order; more may follow."""
    documented = re.findall(r"^\| `(\w+)` \| ([\w\[\]]+) \|", section, re.MULTILINE)
    relation = ask(f"select * from {view}")
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


def test_the_program_of_the_page_about_programs_runs(project: Path) -> None:
    """As it stands there, in a process of its own."""
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "programs.md").read_text(), re.DOTALL)
    (project / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        env={**os.environ, "LOOM_JOURNAL": "memory", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "fetch completed" in done.stdout
