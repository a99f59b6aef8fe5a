"""What a workflow author imports: definitions, the context as an interface, questions, results.

Knows the vocabulary only (policies, errors, ids). It never reaches the engine or the journal: the engine fulfils
:class:`~loom_kernel.authoring.context.Context`, and ``runtime`` fills the launcher slot.
"""
