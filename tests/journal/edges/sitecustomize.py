"""Put on a hub's path, this makes what is rare in its life happen all the time: small segments, checkpoints and moving of
heads every few appends, a quiet moment after a few milliseconds.
"""

import sys

if "loom_kernel.journal.hub" in sys.orig_argv:
    from loom_kernel.journal import applier, commit_log, database, tables

    applier.LINGER_S = 0.01
    applier.QUIET_S = 0.02
    applier.MANY = 20
    commit_log.SEGMENT_BYTES = 8_192
    database.CHECKPOINT_BYTES = 100_000
    database.QUIET_CHECKPOINT_BYTES = 10_000
    tables.MANY_HEADS = 3
    tables.MIRROR = 2
