"""The process that owns a project's journal file, and the way to it.

``paths`` says where its socket lies, ``launch`` finds or starts it, ``protocol`` is what is said on the socket,
``client`` is a :class:`~loom_kernel.journal.abc.RunJournal` at the far end of it, ``server`` is the hub itself.
The hub never runs a person's code and never decides what a run does: it commits, orders, fences and tells.
"""
