"""Questions and answers: asking, showing, reading what a person typed, and answering by script."""
