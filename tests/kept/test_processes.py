"""The storage from several real processes at once, through a hub; and pyplot that a step is the first to import."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import loom_kernel
from loom_kernel.errors import UnknownRunError

pytestmark = pytest.mark.timeout(90)

BUMP = textwrap.dedent("""
    import sys
    from loom_kernel import Context, workflow
    from loom_kernel.errors import StorageConflictError

    PLACE = {"flow_name": "counts", "stage_name": "total"}

    @workflow
    async def bump(ctx: Context, who: str) -> int:
        for n in range(6):
            while True:
                now = await ctx.storage.get_artifact("counts", "total")
                note = {"type": "append_record", "id": f"{who}{n}", "payload": {**PLACE, "data": n}}
                try:
                    if now is None:
                        made = {"type": "create_artifact", "id": "a", "payload": {**PLACE, "data": 1}}
                        await ctx.storage.commit([made, note])
                    else:
                        await ctx.storage.commit([note, {"type": "replace_artifact", "id": "a",
                            "expected_revision": now.revision, "payload": {**PLACE, "data": now.data + 1}}])
                    break
                except StorageConflictError:
                    continue
        return now.data if now else 1

    if __name__ == "__main__":
        bump.start(who=sys.argv[1]).wait()
""")


def test_two_processes_count_together(project: Path) -> None:
    """Each reads, adds one and commits until its own is taken: nothing is lost, and nothing is counted twice."""
    (project / "bump.py").write_text(BUMP)
    both = [subprocess.Popen([sys.executable, "bump.py", who], cwd=project, stderr=subprocess.PIPE) for who in "xy"]
    assert [process.wait(60) for process in both] == [0, 0], [process.stderr.read() for process in both]  # type: ignore[union-attr]
    for process in both:
        process.stderr.close()  # type: ignore[union-attr]
    found = loom_kernel.sql("select max(revision), count(*), count(distinct run_id) from artifacts").fetchall()
    assert found == [(12, 12, 2)]
    assert loom_kernel.sql("select count(*), count(distinct id) from records").fetchall() == [(12, 12)]
    newest = "select data from records where stage_name = 'total' order by created_at desc limit 1"
    assert len(loom_kernel.sql(newest).fetchall()) == 1
    assert sorted(run.workflow for run in loom_kernel.runs()) == ["bump", "bump"]
    with pytest.raises(UnknownRunError):
        loom_kernel.get_run("storage")


def test_pyplot_may_be_first_imported_in_a_step(tmp_path: Path) -> None:
    """In two steps at once, in a process that has not seen matplotlib before."""
    pytest.importorskip("matplotlib")
    (tmp_path / "draw.py").write_text(
        textwrap.dedent("""
        import asyncio, sys, threading
        from loom_kernel import Context, step, workflow
        from loom_kernel.testing import run

        both = threading.Barrier(2, timeout=30)

        @step
        def draw(n: int) -> dict:
            import matplotlib.pyplot as plt
            both.wait()
            plt.figure()
            both.wait()
            plt.plot(range(n + 2))
            both.wait()
            plt.show() if n else None
            return {"lines": len(plt.gcf().axes[0].lines) if not n else 0, "open": plt.get_fignums()}

        @workflow
        async def w(ctx: Context) -> list:
            return await asyncio.gather(draw(0), draw(1))

        assert "matplotlib" not in sys.modules
        print(asyncio.run(run(w, {})).result)
        """)
    )
    done = subprocess.run([sys.executable, "draw.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[{'lines': 1, 'open': [1]}, {'lines': 0, 'open': []}]", done.stderr
