"""``local/NAME``: a small model on this machine, in a process of its own, so that a fresh install can run agents.

Choosing one is asking for its bytes: they come once, with size, source and progress shown, and are checked by hash.
"""
