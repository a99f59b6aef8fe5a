"""Models and agents: what a stage says, hears and does.

Plugged into the engine by ``runtime/`` as the capability ``models``. Knows how a model is asked, tried again and
exchanged, what tools do and when a person must allow it; never how a run is executed or a journal written: what must
last goes through the ``Turn`` that the engine hands over.
"""
