"""Settings: which source wins, where the project folder is, what is said when something is wrong."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from loom_kernel.errors import SettingsError, StorageUnavailableError
from loom_kernel.settings import Settings, ensure_home, project_home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty working folder."""
    made = tmp_path / "work"
    made.mkdir()
    return made


def test_the_first_source_wins(folder: Path) -> None:
    """Argument, configure(), environment, loom.toml, default, in this order, each named."""
    settings = Settings({}, folder)
    assert (settings.find("journal").value, settings.find("journal").source) == ("duckdb", "default")
    (folder / "loom.toml").write_text('journal = "from-file"\n')
    settings = Settings({}, folder)
    assert settings.find("journal").source == "loom.toml"
    assert settings.find("journal").where.endswith("loom.toml")
    settings = Settings({"LOOM_JOURNAL": "from-environment"}, folder)
    assert (settings.get("journal"), settings.find("journal").where) == ("from-environment", "LOOM_JOURNAL")
    settings.configure(journal="from-code")
    assert settings.find("journal").source == "configure()"
    assert settings.get("journal", "argument") == "argument"
    settings.configure(journal=None)
    assert settings.find("journal").source == "environment"


def test_flags_are_read_as_people_write_them(folder: Path) -> None:
    """1, yes and on mean yes; nonsense is named with its variable."""
    for text, value in (("1", True), ("yes", True), ("ON", True), ("0", False), ("off", False), ("", False)):
        assert Settings({"LOOM_TEST": text}, folder).get("test") is value
    with pytest.raises(SettingsError, match="LOOM_TEST='maybe' is neither 1 nor 0"):
        Settings({"LOOM_TEST": "maybe"}, folder).get("test")


def test_unknown_names_are_refused_with_a_hint(folder: Path) -> None:
    """In code and in the file alike."""
    with pytest.raises(SettingsError, match="did you mean 'journal'"):
        Settings({}, folder).configure(jurnal="x")
    (folder / "loom.toml").write_text('jurnal = "x"\n')
    with pytest.raises(SettingsError, match=r"loom.toml: no setting 'jurnal'; did you mean 'journal'\?"):
        Settings({}, folder)
    (folder / "loom.toml").write_text("journal = \n")
    with pytest.raises(SettingsError, match=r"loom.toml cannot be read"):
        Settings({}, folder)
    (folder / "loom.toml").write_text("test = 3\n")
    with pytest.raises(SettingsError, match="test is true or false, not 3"):
        Settings({}, folder)


def test_paths_in_the_file_are_relative_to_it(folder: Path) -> None:
    """A project's file means the same from every folder below it."""
    (folder / "loom.toml").write_text('answers = "a/answers.yaml"\n')
    below = folder / "deep" / "down"
    below.mkdir(parents=True)
    assert Settings({}, below).get("answers") == str(folder / "a/answers.yaml")


def test_loom_home_is_the_folder_itself(folder: Path) -> None:
    """No .loom is added to it."""
    setting = Settings({"LOOM_HOME": str(folder / "elsewhere")}, folder).home()
    assert (setting.value, setting.source) == (folder / "elsewhere", "environment")


def test_the_nearest_dot_loom_wins(folder: Path) -> None:
    """It is found from every folder below."""
    (folder / ".loom").mkdir()
    below = folder / "notebooks"
    below.mkdir()
    (below / "pyproject.toml").touch()
    assert project_home(below) == (folder / ".loom", "the nearest .loom")


def test_else_it_stands_beside_the_project_file(folder: Path) -> None:
    """pyproject.toml or .git mark the project."""
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    (folder / ".git").mkdir()
    assert project_home(below) == (folder / ".loom", "beside .git")
    (folder / "a" / "pyproject.toml").touch()
    assert project_home(below) == (folder / "a" / ".loom", "beside pyproject.toml")


def test_else_it_is_in_the_working_folder(folder: Path) -> None:
    """Without any mark."""
    assert project_home(folder) == (folder / ".loom", "the working folder")


def test_home_itself_is_never_the_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks in $HOME or above it do not count."""
    monkeypatch.setenv("HOME", str(folder))
    (folder / ".git").mkdir()
    (folder / ".loom").mkdir()
    (folder.parent / "pyproject.toml").touch()
    below = folder / "work"
    below.mkdir()
    assert project_home(below) == (below / ".loom", "the working folder")


def test_it_is_resolved_once(folder: Path) -> None:
    """A folder made later does not move the journal of a process that runs."""
    settings = Settings({}, folder)
    first = settings.home().value
    (folder.parent / ".loom").mkdir()
    assert settings.home().value == first


def test_a_new_folder_is_private_and_ignored(folder: Path) -> None:
    """0700, with a .gitignore of everything; making it again changes nothing."""
    home = ensure_home(folder / ".loom")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert (home / ".gitignore").read_text() == "*\n"
    (home / ".gitignore").write_text("mine\n")
    ensure_home(home)
    assert (home / ".gitignore").read_text() == "mine\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_sentence(folder: Path) -> None:
    """It says which and what to do."""
    folder.chmod(0o500)
    with pytest.raises(StorageUnavailableError, match="LOOM_HOME"):
        ensure_home(folder / ".loom")


def test_a_file_in_the_way_is_a_sentence(folder: Path) -> None:
    """The same where the folder's name is taken by a file."""
    (folder / "file").touch()
    with pytest.raises(StorageUnavailableError, match="cannot be written"):
        ensure_home(folder / "file" / ".loom")


def test_all_settings_are_listed_with_their_sources(folder: Path) -> None:
    """What the doctor prints."""
    listed = Settings({"LOOM_MODEL": "m"}, folder).all()
    assert [s.name for s in listed] == [
        "home", "journal", "answers", "resume", "test", "model", "local_model", "offline", "script", "fallback_models", "roles", "retry",
        "model_routing", "accounts", "limits", "mcp", "notifications", "symlink_directories", "redact", "agent_dir", "stages_at_once", "max_depth",
        "budget_cost", "budget_tokens", "budget_seconds", "budget_warn",
    ]  # fmt: skip
    assert {s.name: s.source for s in listed}["model"] == "environment"


def test_a_number_is_read_and_checked(folder: Path) -> None:
    """From the environment, from ``loom.toml`` and from code."""
    assert Settings({"LOOM_BUDGET_COST": "0.5"}, folder).get("budget_cost") == 0.5
    with pytest.raises(SettingsError, match="LOOM_BUDGET_COST='much' is no number"):
        Settings({"LOOM_BUDGET_COST": "much"}, folder).get("budget_cost")
    (folder / "loom.toml").write_text("budget_tokens = 1000\n")
    settings = Settings({}, folder)
    assert settings.get("budget_tokens") == 1000
    with pytest.raises(SettingsError, match="budget_cost is a number, not 'x'"):
        settings.configure(budget_cost="x")
