"""``%loom fork``, ``diff``, ``why`` and ``show --at`` in a real kernel."""

from __future__ import annotations

import pytest

from tests.notebook.kernel import Kernel

pytestmark = pytest.mark.timeout(120)

FLOWS = """from loom_kernel import *
from pydantic import SecretStr

@step
def fetch(n: int) -> int:
    return n

@workflow
async def digest(ctx: Context, n: int = 1) -> str:
    rows = await fetch(n)
    ok = await ctx.ui.confirm("Go?", name="go", default=True, timeout_s=0.01)
    return f"{rows} {ok}"

@workflow
async def secretive(ctx: Context, token: SecretStr) -> str:
    await fetch(1)
    return token.get_secret_value()[:1]
"""


def test_fork_diff_and_why(headless: Kernel) -> None:
    """A fork shows its picture once; the difference is text and a page fragment without anything volatile."""
    headless.ok(FLOWS)
    headless.ok("r = digest.start(); r.wait();")
    cell = headless.ok("f = %loom fork r --from go --answer go=no")
    assert cell.text.splitlines()[0].startswith("forked from the run of ")
    assert "digest: completed" in cell.text
    assert headless.ok("f.value").text == "'1 False'"
    cell = headless.ok("%loom diff f")
    assert cell.text.splitlines()[0] == "digest: A and B differ in 1 call and the result"
    assert "go?: other answer" in cell.text and " s)" not in cell.text
    assert "wf-diff" in cell.html and "data:image/svg+xml" in cell.html
    assert headless.ok("%loom diff r f --node go").text.splitlines()[0] == "digest: A and B differ in 1 call"
    assert headless.ok("%loom diff r f --sql").text.startswith("with calls as")
    assert "answered from there" in headless.ok("%loom why f fetch").text
    assert headless.ok("%loom why f").text.splitlines()[0] == "digest"
    assert "digest: completed" in headless.ok("%loom show r --at 2099-01-01").text
    assert headless.ok("k = %loom fork r n=7 --quiet\nk.value").text.endswith("'7 True'")
    cell = headless.ok("many = 9\nk = %loom fork r n=$many --quiet\nk.value")
    assert cell.text.endswith("'9 True'")


def test_a_fork_asks_for_secrets_again(headless: Kernel) -> None:
    """They come from a variable, and are written nowhere."""
    headless.ok(FLOWS)
    headless.ok("r = secretive.start(token=SecretStr('abcdef')); r.wait();")
    cell = headless.run("%loom fork r")
    assert cell.error is not None and "token: a secret, which is not stored; give it again" in cell.error
    headless.ok("again = SecretStr('abcdef')")
    assert headless.ok("f = %loom fork r --secret token=$again\nf.value").text.endswith("'a'")


def test_wrong_words_are_one_sentence(headless: Kernel) -> None:
    """Each a real error with what to do; and ``--help`` of each is printed."""
    headless.ok(FLOWS)
    cell = headless.run("%loom diff")
    assert cell.error is not None and "there is no fork yet; say which two runs: %loom diff RUN OTHER" in cell.error
    headless.ok("r = digest.start(); r.wait();")
    for code, sentence in (
        ("%loom fork", "the following arguments are required: RUN"),
        ("%loom fork r --from nix", "no node named 'nix'; there are fetch, go"),
        ("%loom fork r --answer go", "'go' is no answer; answers are written NAME=VALUE"),
        ("%loom fork r --answer go=perhaps", "the answer to 'go' must be"),
        ("%loom diff r", "is no fork; say with which run to compare it"),
        ("%loom why r nix", "%loom why: no node named 'nix'; there are fetch, go"),
        ("%loom show r --at noon", "'noon' is no moment"),
    ):
        cell = headless.run(code)
        assert cell.error is not None and sentence in cell.error, (code, cell.error)
    for verb in ("fork", "diff", "why"):
        assert headless.ok(f"%loom {verb} --help").text.startswith(f"usage: %loom {verb}")
