"""Tools that come with us. Each is off unless a stage names it; see ``toolbox.py`` for which there are."""
