"""What people look at, folded from events. No I/O, no clock; knows events and codec only.

``run`` folds, ``graph`` decides what is drawn, ``layout`` where, and ``snapshot``, ``svg``, ``text`` and ``export``
say it to a widget, a saved notebook, a terminal and other tools.
"""
