"""The commit log keeps whole records and nothing else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from loom_kernel.errors import StorageUnavailableError
from loom_kernel.journal import commit_log, files
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.commit_log import CommitLog, LogBrokenError, record

pytestmark = pytest.mark.timeout(60)


def entry(global_seq: int, size: int = 3) -> JournalEntry:
    return JournalEntry(global_seq, "run", global_seq, f"k{global_seq}", "node.completed", None, b"x" * size, 1_000)


def write(log: CommitLog, *changes: list[JournalEntry]) -> None:
    log.write([record(change) for change in changes], changes[0][0].global_seq)


def changes(folder: Path, after: int = 0) -> list[list[JournalEntry]]:
    log = CommitLog(folder)
    try:
        return list(log.changes(after))
    finally:
        log.close()


def opened(folder: Path) -> CommitLog:
    log = CommitLog(folder)
    assert list(log.changes(0)) == []
    return log


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    return opened(tmp_path)


def test_what_was_written_is_read(log: CommitLog, tmp_path: Path) -> None:
    """Changes come back whole and in order, after the position that was asked for."""
    write(log, [entry(1), entry(2)], [entry(3)])
    write(log, [entry(4)])
    log.close()
    assert changes(tmp_path) == [[entry(1), entry(2)], [entry(3)], [entry(4)]]
    assert changes(tmp_path, after=2) == [[entry(3)], [entry(4)]]
    assert changes(tmp_path, after=4) == []


def test_a_log_is_continued(log: CommitLog, tmp_path: Path) -> None:
    """Opening a log again writes behind what is there."""
    write(log, [entry(1)])
    log.close()
    again = CommitLog(tmp_path)
    assert list(again.changes(0)) == [[entry(1)]]
    write(again, [entry(2)])
    again.close()
    assert changes(tmp_path) == [[entry(1)], [entry(2)]]


def test_the_last_record_may_be_torn_anywhere(log: CommitLog, tmp_path: Path) -> None:
    """Cut at every byte of it: the records before stay, it goes, and writing goes on."""
    write(log, [entry(1)])
    whole = record([entry(2), entry(3)])
    write(log, [entry(2), entry(3)])
    log.close()
    [path] = tmp_path.glob("*.log")
    content = path.read_bytes()
    start = len(content) - len(whole)
    for kept in range(len(whole)):
        path.write_bytes(content[: start + kept])
        again = CommitLog(tmp_path)
        assert list(again.changes(0)) == [[entry(1)]], kept
        assert again.cut == kept
        assert path.stat().st_size == start
        write(again, [entry(2)])
        again.close()
        assert changes(tmp_path) == [[entry(1)], [entry(2)]]


def filled(folder: Path) -> CommitLog:
    """A log whose first segment was filled ahead."""
    log = CommitLog(folder)
    assert list(log.changes(0)) == []
    log.fill_ahead()
    assert log._filler is not None
    log._filler.join()
    return log


def test_segments_are_filled_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write into one changes no file's size; the next is made meanwhile; leaving in good order leaves none."""
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 4096)
    log = filled(tmp_path)
    for i in range(1, 30):
        write(log, [entry(i, size=300)])
        assert log._filler is not None
        log._filler.join()
        assert {path.stat().st_size for path in tmp_path.iterdir()} <= {4096, *range(4097, 4500)}
    assert len(list(tmp_path.glob("*.log"))) == 3
    log.drop_ahead()
    assert not (tmp_path / "next.zeros").exists()
    write(log, [entry(30)])
    log.close()
    assert [change[0].global_seq for change in changes(tmp_path)] == list(range(1, 31))
    again = CommitLog(tmp_path)
    list(again.changes(0))
    again.close(everything_applied=True)
    assert list(tmp_path.iterdir()) == []


def test_a_growing_segment_is_left_for_a_filled_one(tmp_path: Path) -> None:
    """The first writes do not wait for it; as soon as it is there they go on in it."""
    log = opened(tmp_path)
    write(log, [entry(1)])
    log.fill_ahead()
    assert log._filler is not None
    log._filler.join()
    write(log, [entry(2)], [entry(3)])
    log.close()
    assert [path.name for path in sorted(tmp_path.glob("*.log"))] == [f"{first:020d}.log" for first in (1, 2)]
    assert changes(tmp_path) == [[entry(1)], [entry(2)], [entry(3)]]


def test_the_last_record_may_be_torn_anywhere_among_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, in a segment that was filled ahead: what the torn record left behind cannot pass for one later."""
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 4096)
    log = filled(tmp_path)
    log._ahead = False
    write(log, [entry(1)])
    start, whole = log._end, record([entry(2), entry(3)]) + record([entry(4)])
    write(log, [entry(2), entry(3)], [entry(4)])
    log.close()
    [path] = tmp_path.glob("*.log")
    content = path.read_bytes()
    first = len(record([entry(2), entry(3)]))
    for kept in range(first):  # the second record arrived, the first only up to here
        torn = content[: start + kept] + bytes(first - kept) + content[start + first :]
        path.write_bytes(torn)
        again = CommitLog(tmp_path)
        assert list(again.changes(0)) == [[entry(1)]], kept
        write(again, [entry(2), entry(3)])
        again.close()
        assert changes(tmp_path) == [[entry(1)], [entry(2), entry(3)]]
    assert len(whole) > first


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_damaged_last_record_is_cut(log: CommitLog, tmp_path: Path, at: int) -> None:
    """A flipped bit, wherever it is, does not pass for a record."""
    write(log, [entry(1)])
    last = record([entry(2)])
    write(log, [entry(2)])
    log.close()
    [path] = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    content[len(content) - len(last) + at] ^= 0x40
    path.write_bytes(content)
    assert changes(tmp_path) == [[entry(1)]]


@pytest.mark.parametrize("rest", [b"\0" * 4096, b"\xff" * 100, b"\0" * 7, b"\1\0\0\0"])
def test_what_follows_the_last_record_is_no_record(log: CommitLog, tmp_path: Path, rest: bytes) -> None:
    """Zeros that were prepared ahead, or garbage."""
    write(log, [entry(1)])
    log.close()
    [path] = tmp_path.glob("*.log")
    with path.open("ab") as file:
        file.write(rest)
    again = CommitLog(tmp_path)
    assert list(again.changes(0)) == [[entry(1)]]
    write(again, [entry(2)])
    again.close()
    assert changes(tmp_path) == [[entry(1)], [entry(2)]]


def test_a_segment_without_a_header_is_as_none(tmp_path: Path) -> None:
    """The process died while it made one."""
    (tmp_path / f"{7:020d}.log").write_bytes(b"\x10\0\0")
    log = CommitLog(tmp_path)
    assert list(log.changes(6)) == []
    write(log, [entry(7)])
    log.close()
    assert changes(tmp_path, after=6) == [[entry(7)]]


def test_segments_go_when_they_are_applied(log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is named by its first entry; the newest stays."""
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 200)
    for i in range(1, 10):
        write(log, [entry(i, size=100)])
    names = sorted(path.name for path in tmp_path.glob("*.log"))
    assert names == [f"{first:020d}.log" for first in (1, 3, 5, 7, 9)]
    log.drop_applied(5)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == names[2:]
    assert [change[0].global_seq for change in changes(tmp_path, after=5)] == [6, 7, 8, 9]
    log.drop_applied(9)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == names[-1:]
    log.close(everything_applied=True)
    assert list(tmp_path.glob("*.log")) == []


def test_damage_in_the_middle_is_told(log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was acknowledged and is gone must not be passed over."""
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 200)
    for i in range(1, 5):
        write(log, [entry(i, size=100)])
    log.close()
    first = min(tmp_path.glob("*.log"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    with pytest.raises(StorageUnavailableError, match=r"damaged at byte .* events 2 to 2, which were acknowledged"):
        changes(tmp_path)
    assert [change[0].global_seq for change in changes(tmp_path, after=2)] == [3, 4]


def test_a_person_may_go_on_without_what_is_lost(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By naming exactly what is given up."""
    for i in range(1, 4):
        write(log, [entry(i)])
    log.close()
    [path] = tmp_path.glob("*.log")
    content = path.read_bytes()
    path.unlink()
    other = CommitLog(tmp_path)
    assert list(other.changes(3)) == []
    write(other, [entry(4)])
    other.close()
    with pytest.raises(StorageUnavailableError, match="LOOM_ACCEPT_LOSS=2-3"):
        changes(tmp_path, after=1)
    monkeypatch.setenv("LOOM_ACCEPT_LOSS", "1-3")
    with pytest.raises(StorageUnavailableError, match="LOOM_ACCEPT_LOSS=2-3"):
        changes(tmp_path, after=1)
    monkeypatch.setenv("LOOM_ACCEPT_LOSS", "2-3")
    assert changes(tmp_path, after=1) == [[entry(4)]]
    monkeypatch.delenv("LOOM_ACCEPT_LOSS")
    path.write_bytes(content)
    assert changes(tmp_path, after=1) == [[entry(2)], [entry(3)], [entry(4)]]


def test_a_newer_format_is_refused(log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sentence that says what to do."""
    monkeypatch.setattr(commit_log, "FORMAT", 2)
    write(log, [entry(1)])
    log.close()
    monkeypatch.undo()
    with pytest.raises(StorageUnavailableError, match="newer loom-kernel"):
        changes(tmp_path)


def test_a_full_disk_leaves_the_log_as_it_was(log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fits half is taken back, and the next one goes on where it was."""
    write(log, [entry(1)])
    whole = os.pwrite

    def half(fd: int, data: bytes, at: int) -> int:
        if len(data) > 50:
            return whole(fd, data[:50], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(OSError, match="No space"):
        write(log, [entry(2, size=100)])
    monkeypatch.undo()
    write(log, [entry(2)])
    log.close()
    assert changes(tmp_path) == [[entry(1)], [entry(2)]]


def test_a_failed_sync_breaks_the_log(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may call lost pages clean, so a second try would lie."""
    write(log, [entry(1)])

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "_sync", broken)
    with pytest.raises(LogBrokenError, match="Input/output"):
        write(log, [entry(2)])
    log.close()
