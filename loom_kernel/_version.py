"""The version, written once: packaging reads it here, and so does everything inside the package."""

__version__ = "0.1.0"
