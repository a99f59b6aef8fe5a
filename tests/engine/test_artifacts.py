"""What runs keep by name: values that were put, tables and figures that steps made, and what they showed."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.errors import LoomError
from tests.engine.harness import World, events_of, rest, types_of, until

pytestmark = pytest.mark.timeout(60)

pd = pytest.importorskip("pandas")
matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def without_windows() -> Any:
    """Figures of no step are drawn without a window, and closed at the end."""
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    yield
    plt.close("all")


def kept(execution: Any) -> list[tuple[str, int, str, str]]:
    return [(e.name, e.revision, e.kind, e.source) for e in events_of(execution, ev.ArtifactKept)]


def test_what_is_put_is_an_artifact_with_a_revision() -> None:
    """Each put of a name is its next revision, with kind, size, hash and a preview; a resume adds none."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> Any:
            await ctx.put("notes", "first")
            await ctx.put("cleaned", pd.DataFrame({"a": range(8)}))
            await ctx.put("notes", {"n": 2})
            await ctx.put("raw", b"12345")
            if not await ctx.ui.confirm("Go on?", name="go"):
                return None
            await ctx.put("notes", "third")
            return len(ctx.get("cleaned"))

        execution = await world.start(body)
        await until(lambda: "prompt.opened" in types_of(execution))
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True, "go")
        assert (await rest(execution)).result == 8
        assert kept(execution) == [
            ("notes", 1, "text", "put"),
            ("cleaned", 1, "table", "put"),
            ("notes", 2, "json", "put"),
            ("raw", 1, "bytes", "put"),
            ("notes", 3, "text", "put"),
        ]
        first, table, _, raw, _ = events_of(execution, ev.ArtifactKept)
        assert raw.size_bytes == 5 and len(raw.sha256) == 64 and first.media_type == "text/plain"
        assert table.preview[0].kind == "table" and table.preview[0].total == 8 and len(table.preview[0].rows) == 5
        await world.close()

    asyncio.run(main())


def test_tables_and_figures_of_steps_are_artifacts() -> None:
    """A step's table or figure is found under the step's name, those inside a dict or list under their place."""

    async def main() -> None:
        world = World()

        @step
        def cleaned(n: int) -> Any:
            return pd.DataFrame({"n": [n]})

        @step
        def report() -> Any:
            from matplotlib.figure import Figure

            figure = Figure()
            figure.subplots().plot([1, 2])
            return {"figure": figure, "tables": [pd.DataFrame({"a": [1]}), 3], "text": "fine"}

        async def body(ctx: Context) -> Any:
            await cleaned(1)
            await cleaned(2)
            found = await report()
            assert isinstance(found["figure"], codec.Image) and found["text"] == "fine"
            return found["figure"]

        execution = await world.start(body)
        result = (await rest(execution)).result
        assert isinstance(result, codec.Image) and result.of == "matplotlib"
        assert kept(execution) == [
            ("cleaned", 1, "table", "result"),
            ("cleaned", 2, "table", "result"),
            ("report.figure", 1, "figure", "result"),
            ("report.tables[0]", 1, "table", "result"),
        ]
        figure = events_of(execution, ev.ArtifactKept)[2]
        assert figure.preview[0].text.startswith("data:image/png;base64,") and figure.path == ["figure"]
        await world.close()

    asyncio.run(main())


def test_a_replay_gives_the_body_the_same_picture() -> None:
    """What a step drew is the same value live and from the journal, so that a body cannot tell."""

    async def main() -> None:
        world = World()

        @step
        def plot() -> Any:
            import matplotlib.pyplot as plt

            figure, axes = plt.subplots()
            axes.plot([3, 1, 2])
            return figure

        seen: list[Any] = []

        async def body(ctx: Context) -> bool:
            seen.append(await plot())
            return bool(await ctx.ui.confirm("Good?", name="good"))

        execution = await world.start(body)
        await until(lambda: bool(seen))
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True, "good")
        assert (await rest(execution)).result is True
        assert len(seen) == 2 and seen[0] == seen[1] and seen[0].width > 100
        await world.close()

    asyncio.run(main())


def test_steps_that_draw_at_once_do_not_mix() -> None:
    """Eight sync steps in threads use pyplot's current figure, each between the others' calls; each gets its own."""

    async def main() -> None:
        world = World()
        together = threading.Barrier(8, timeout=20)

        @step
        def plot(n: int) -> Any:
            import matplotlib.pyplot as plt

            plt.figure(figsize=(3, 2))
            together.wait()
            for k in range(n + 1):
                plt.plot([0, k])
                time.sleep(0.001)
            together.wait()
            plt.title(f"number {n}")
            together.wait()
            axes = plt.gca()
            assert len(axes.lines) == n + 1 and axes.get_title() == f"number {n}", "drawn into another step's figure"
            assert plt.get_fignums() == [1]
            return plt.gcf()

        async def body(ctx: Context) -> Any:
            return await asyncio.gather(*(plot(n) for n in range(8)))

        import matplotlib.pyplot as plt

        mine = plt.figure()
        execution = await world.start(body)
        result = await rest(execution, 40)
        assert result.status == "completed", result.error
        pictures = result.result
        assert len({p.data for p in pictures}) == 8

        def alone(n: int) -> bytes:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(3, 2))
            axes = figure.subplots()
            for k in range(n + 1):
                axes.plot([0, k])
            axes.set_title(f"number {n}")
            return codec.picture(figure).data

        assert [p.data for p in pictures] == [alone(n) for n in range(8)], "the picture is what one step alone draws"
        assert plt.get_fignums() == [mine.number] and plt.gcf() is mine, "the notebook's own figures are untouched"
        await world.close()

    asyncio.run(main())


def test_show_lands_in_the_node() -> None:
    """``plt.show()`` in a step, sync or async, keeps the picture with its node and says so in its log."""

    async def main() -> None:
        world = World()

        @step
        def sync_plot() -> int:
            import matplotlib.pyplot as plt

            plt.plot([1, 2])
            plt.show()
            assert plt.get_fignums() == [], "what was shown is closed"
            plt.figure(figsize=(2, 2))
            plt.gcf().show()
            return 1

        @step
        async def failing_plot() -> int:
            import matplotlib.pyplot as plt

            plt.figure(figsize=(2, 1))
            await asyncio.sleep(0.01)
            plt.show()
            raise ValueError("after the picture")

        async def body(ctx: Context) -> str:
            await sync_plot()
            try:
                await failing_plot()
            except ValueError:
                return "seen"
            return "not seen"

        execution = await world.start(body)
        assert (await rest(execution)).result == "seen"
        assert kept(execution) == [
            ("sync_plot", 1, "figure", "shown"),
            ("sync_plot", 2, "figure", "shown"),
            ("failing_plot", 1, "figure", "shown"),
        ]
        event = events_of(execution, ev.ArtifactKept)[0]
        image = await codec.decode(bytes(event.value), world.journal.get_blob)
        assert isinstance(image, codec.Image) and image.png is not None
        lines = [line for e in events_of(execution, ev.NodeLogged) for line in e.lines]
        assert len(lines) == 3 and lines[0].startswith("figure shown: Image(matplotlib, ")
        await world.close()

    asyncio.run(main())


def test_put_in_a_step_says_where_it_belongs() -> None:
    """A step runs again when it is tried again, so it returns what is to be kept; the sentence says so."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> str:
            async def inner() -> None:
                await ctx.put("x", 1)

            try:
                await ctx.step("inner", inner, max_attempts=1)
            except LoomError as error:
                return str(error)
            return ""

        execution = await world.start(body)
        assert "belongs in the workflow's body" in (await rest(execution)).result
        await world.close()

    asyncio.run(main())
