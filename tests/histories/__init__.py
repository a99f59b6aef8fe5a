"""Recorded runs that must replay for ever; `record.py` made them."""
