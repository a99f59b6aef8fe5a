"""Settings and where each came from: argument, ``configure(...)``, environment, ``loom.toml``, default; first found wins.

Also the project folder: which ``.loom`` this process works with, and how a new one is made.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loom_kernel.errors import SettingsError, StorageConfigError, StorageUnavailableError

Source = Literal["argument", "configure()", "environment", "loom.toml", "default"]

FOLDER = ".loom"


@dataclass(frozen=True)
class Setting:
    """One setting as it is now. ``where`` says more about the source: the variable, the file, the rule."""

    name: str
    value: Any
    source: Source
    where: str = ""


@dataclass(frozen=True)
class _Known:
    name: str
    variable: str
    default: Any
    kind: Literal["text", "path", "flag", "number", "list", "table"]
    help: str


KNOWN: dict[str, _Known] = {
    k.name: k
    for k in (
        _Known("home", "LOOM_HOME", None, "path", "the .loom folder"),
        _Known("journal", "LOOM_JOURNAL", "duckdb", "text", "duckdb, memory, a file, or a URL"),
        _Known("answers", "LOOM_ANSWERS", None, "path", "a YAML file with the answers to a run's questions"),
        _Known("resume", "LOOM_RESUME", False, "flag", "let scripts and headless notebooks continue unfinished runs"),
        _Known("test", "LOOM_TEST", False, "flag", "a fresh journal, seeded ids, a virtual clock, a static display"),
        _Known("model", "LOOM_MODEL", None, "text", "the model that stages use"),
        _Known("local_model", "LOOM_LOCAL_MODEL", None, "path", "a GGUF file that every local model is then"),
        _Known("offline", "LOOM_OFFLINE", False, "flag", "fetch nothing"),
        _Known("script", "LOOM_SCRIPT", None, "path", "a file with the replies of scripted models"),
        _Known("fallback_models", "LOOM_FALLBACK_MODELS", None, "list", "models that stand in for it, in order"),
        _Known("roles", "", None, "table", "names that stand for models: reasoning, coding, review"),
        _Known("retry", "", None, "table", "how often a model is asked again: enabled, max_attempts, base_s, max_s"),
        _Known("model_routing", "", None, "table", 'what model="auto" may choose, and router_model'),
        _Known("accounts", "", None, "table", "further credentials of providers, as openai-1: api_key_env, api_base"),
        _Known("limits", "", None, "table", "rate limits by name: requests_per_minute, tokens_per_minute"),
        _Known("mcp", "", None, "table", "MCP servers by name: command, args, env, url"),
        _Known("notifications", "", None, "table", "notices of runs: enabled, notify_on (a list of their kinds)"),
        _Known("symlink_directories", "", None, "list", "folders that temporary worktrees share with their checkout"),
        _Known("redact", "", None, "list", "regular expressions of further secrets"),
        _Known("agent_dir", "LOOM_AGENT_DIR", None, "path", "the folder of prompt templates and skills"),
        _Known("stages_at_once", "LOOM_STAGES_AT_ONCE", None, "number", "model stages of one run that work at once"),
        _Known("max_depth", "LOOM_MAX_DEPTH", 4, "number", "how deep workflows nest, the outermost counted"),
        _Known("budget_cost", "LOOM_BUDGET_COST", None, "number", "US dollars that a run may spend"),
        _Known("budget_tokens", "LOOM_BUDGET_TOKENS", None, "number", "tokens that a run may use"),
        _Known("budget_seconds", "LOOM_BUDGET_SECONDS", None, "number", "seconds that a run may take"),
        _Known("budget_warn", "LOOM_BUDGET_WARN", None, "number", "percentage of a limit at which a run is warned of"),
    )
}


class Settings:
    """The settings of this process.

    Args:
        environ: the environment; the process's own when left out.
        folder: where to look for ``loom.toml`` and the project; the working folder when left out.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self.folder = (folder or Path.cwd()).absolute()
        self._configured: dict[str, Any] = {}
        self._file = find_upwards(self.folder, "loom.toml")
        self._from_file = _read_toml(self._file) if self._file is not None else {}
        self._home: Setting | None = None

    def configure(self, **values: Any) -> None:
        """Set from code; ``None`` takes back what was set.

        Raises:
            SettingsError: no setting of that name, or a value of the wrong kind.
        """
        for name, value in values.items():
            _check(name, value, "configure()")
        for name, value in values.items():
            if value is None:
                self._configured.pop(name, None)
            else:
                self._configured[name] = str(value) if KNOWN[name].kind in ("text", "path") else value
        if "home" in values:
            self._home = None

    def find(self, name: str, argument: Any = None) -> Setting:
        """A setting and its source.

        Raises:
            SettingsError: no setting of that name, or a value of the wrong kind.
        """
        known = KNOWN.get(name) or _unknown(name, "find()")
        if argument is not None:
            return Setting(name, argument, "argument")
        if name in self._configured:
            return Setting(name, self._configured[name], "configure()")
        text = self._environ.get(known.variable, "").strip() if known.variable else ""
        if text:
            read = {"flag": _flag, "number": _number, "list": _list}.get(known.kind)
            return Setting(name, text if read is None else read(text, known.variable), "environment", known.variable)
        if name in self._from_file:
            value = self._from_file[name]
            if known.kind == "path" and self._file is not None:
                value = str(self._file.parent / value)
            return Setting(name, value, "loom.toml", str(self._file))
        return Setting(name, known.default, "default")

    def get(self, name: str, argument: Any = None) -> Any:
        """The value alone."""
        return self.find(name, argument).value

    def home(self, argument: Path | str | None = None) -> Setting:
        """The project's ``.loom`` folder, resolved once per process; it need not exist yet."""
        if argument is not None:
            return Setting("home", Path(argument).expanduser().absolute(), "argument")
        if self._home is None:
            found = self.find("home")
            if found.value is not None:
                self._home = Setting("home", Path(found.value).expanduser().absolute(), found.source, found.where)
            else:
                path, rule = project_home(self.folder)
                self._home = Setting("home", path, "default", rule)
        return self._home

    def all(self) -> list[Setting]:
        """Every setting with its source, for ``%loom doctor``."""
        return [self.home() if name == "home" else self.find(name) for name in KNOWN]


def project_home(folder: Path) -> tuple[Path, str]:
    """The ``.loom`` folder for a working folder, and the rule that chose it.

    The nearest ``.loom``; else one beside the nearest ``pyproject.toml`` or ``.git``; else one in the working folder.
    The search never takes ``$HOME`` or ``/`` themselves and never goes above ``$HOME``.
    """
    searched = _searched(folder)
    for place in searched:
        if (place / FOLDER).is_dir():
            return place / FOLDER, "the nearest .loom"
    for place in searched:
        for mark in ("pyproject.toml", ".git"):
            if (place / mark).exists():
                return place / FOLDER, f"beside {mark}"
    return folder / FOLDER, "the working folder"


def find_upwards(folder: Path, name: str) -> Path | None:
    """The nearest file of that name, within the same bounds as the project."""
    return next((place / name for place in (folder, *_searched(folder)) if (place / name).is_file()), None)


def ensure_home(home: Path) -> Path:
    """Make the folder, for this user only, unless it is there.

    Raises:
        StorageUnavailableError: it cannot be made or written.
    """
    try:
        if not home.is_dir():
            home.parent.mkdir(parents=True, exist_ok=True)
            home.mkdir(mode=0o700, exist_ok=True)
        ignore = home / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise StorageUnavailableError(
            f"the project folder {home} cannot be written ({error.strerror or error}). "
            "Set LOOM_HOME to a folder that can, or correct its permissions.",
            str(home),
        ) from None
    if not os.access(home, os.W_OK | os.X_OK):
        raise StorageUnavailableError(
            f"the project folder {home} is not writable. Set LOOM_HOME to a folder that is, or correct its permissions.",
            str(home),
        )
    return home


def _searched(folder: Path) -> list[Path]:
    home = Path.home()
    searched = []
    for place in (folder, *folder.parents):
        if place == home or place == Path(place.anchor):
            break
        searched.append(place)
    return searched


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    for name, value in values.items():
        _check(name, value, str(path))
    return values


def _check(name: str, value: Any, where: str) -> None:
    known = KNOWN.get(name) or _unknown(name, where)
    if value is None:
        return
    if known.kind == "flag" and not isinstance(value, bool):
        raise SettingsError(f"{where}: {name} is true or false, not {value!r}")
    if known.kind == "table" and not isinstance(value, Mapping):
        raise SettingsError(f"{where}: {name} is a table, not {value!r}")
    if known.kind == "list" and not (isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)):
        raise SettingsError(f"{where}: {name} is a list of texts, not {value!r}")
    if known.kind == "number" and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise SettingsError(f"{where}: {name} is a number, not {value!r}")
    if known.kind in ("text", "path") and not isinstance(value, (str, Path)):
        wrong = StorageConfigError if name == "journal" else SettingsError
        raise wrong(f"{where}: {name} is a text, not {value!r}")


def _list(text: str, where: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _flag(text: str, where: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise SettingsError(f"{where}={text!r} is neither 1 nor 0")


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"{where}={text!r} is no number") from None


def _unknown(name: str, where: str) -> _Known:
    close = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(KNOWN)}"
    raise SettingsError(f"{where}: no setting {name!r}; {hint}")
