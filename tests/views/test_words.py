"""Words and numbers."""

from __future__ import annotations

import pytest

from loom_kernel.views import words
from loom_kernel.views.drawing import fit, text_width
from loom_kernel.views.readable import readable
from tests.views.histories import History, error

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "< 0.01 s"), (0.08, "0.08 s"), (0.31, "0.31 s"), (1.4, "1.4 s"), (9.96, "10 s"), (59.6, "1 m 00 s"),
     (72, "1 m 12 s"), (7_500, "2 h 05 m"), (273_600, "3 d 4 h")],
)  # fmt: skip
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    """The same words as in the browser, which has this table too."""
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("status", "fields", "text"),
    [
        ("completed", {}, "completed"),
        ("skipped", {}, "skipped"),
        ("failed", {"error": error()}, "failed"),
        ("killed", {}, "killed"),
        ("blocked", {}, "blocked"),
    ],
)
def test_every_end_has_its_word(status: str, fields: dict[str, object], text: str) -> None:
    """Terminal statuses read as they are called."""
    h = History()
    h.started()
    h.ended(status, **fields)
    assert words.status_words(h.view()) == text


@pytest.mark.parametrize(
    ("reason", "text"), [("stopped", "stopped"), ("budget", "out of budget"), ("odd", "paused: odd")]
)
def test_a_pause_says_why(reason: str, text: str) -> None:
    """A reason that has no words of its own is named."""
    h = History()
    h.started()
    h.paused(reason)
    assert words.status_words(h.view()) == text


def test_long_labels_are_cut_to_fit() -> None:
    """A cut label ends with an ellipsis and keeps to its room."""
    assert fit("short", 100) == "short"
    cut = fit("a very long label that does not fit", 100)
    assert cut.endswith("…") and text_width(cut) <= 108


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"3", "3"),
        (b'"hello\\nworld"', "hello\nworld"),
        (
            b'{"$loom": "tuple", "v": [1, {"$loom": "datetime", "v": "2026-01-01T00:00:00"}]}',
            '[1, "2026-01-01T00:00:00"]',
        ),
        (b'{"$loom": "bytes", "v": "YWJj"}', "‹bytes›"),
        (b'{"$loom": "json", "blob": "ab", "size": 70000}', "‹json, 70,000 bytes›"),
        (b'{"a": {"$loom": "secret", "sha256": "ab"}}', '{"a": "••••••"}'),
        (b'{"$loom": "pd.DataFrame", "shape": [1461, 6], "v": "UEFSMQ=="}', "‹pd.DataFrame, 1,461 × 6›"),
        (
            b'{"a": {"$loom": "image", "of": "matplotlib", "width": 640, "height": 480, "v": "iVBO"}}',
            '{"a": "‹matplotlib figure, 640 × 480›"}',
        ),
        (b"not json", "not json"),
    ],
)
def test_values_are_readable(raw: bytes, text: str) -> None:
    """What JSON does not have is said in words."""
    assert readable(raw, pretty=False) == text


def test_long_values_are_cut() -> None:
    """A value is shown up to its limit."""
    assert len(readable(b'"' + b"x" * 9_000 + b'"', limit=100)) <= 102
