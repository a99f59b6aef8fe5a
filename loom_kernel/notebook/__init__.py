"""What Jupyter shows and hears: magics, the live view under a cell, answers by click, interrupts.

May know the runtime and everything below it. It never executes a run and never decides about one: whatever a magic or
a click does is a plain Python call that a script could make too. Nothing heavy is imported at ``%load_ext``.
"""
