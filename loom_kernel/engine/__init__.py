"""Executes runs. Deciding (graph, frontier, keys, replay, retries) is pure; doing is a thin shell around it.

This room knows the journal's contract and what authors write; it knows no notebook, no widget and no model. Authors'
rooms never import it: they talk to ``authoring.context.Context``, which ``context.py`` fulfils. Whatever else a body may
ask for (people, models, a project) is a capability that ``runtime.py`` plugs in by name.
"""
