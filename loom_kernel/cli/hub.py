"""The hub from the command line: who owns the journal, and ending it."""

from __future__ import annotations

import argparse

from loom_kernel.cli.table import print_json
from loom_kernel.errors import StorageConfigError
from loom_kernel.settings import Settings


def hub(arguments: argparse.Namespace) -> int:
    """``loom hub status|stop``."""
    from loom_kernel.journal.hub.launch import hub_status, stop_hub
    from loom_kernel.journal.selection import journal_home

    home = journal_home(Settings())
    if home is None:
        raise StorageConfigError("the configured journal has no hub: it is in memory, or an adapter's")
    if arguments.what == "stop":
        stopped = stop_hub(home)
        if arguments.json:
            print_json({"stopped": stopped})
        else:
            print("stopped" if stopped else "no hub is running here")
        return 0
    status = hub_status(home)
    if arguments.json:
        print_json({"running": status is not None, "home": str(home), **(status or {})})
    elif status is None:
        print(f"no hub is running for {home}; the first that needs it starts it")
    else:
        print(f"hub of {home}")
        for name, value in status.items():
            print(f"  {name}: {value}")
    return 0
