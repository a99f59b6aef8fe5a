"""The project's files: what may be read, written and run in it, and its git worktrees. Knows no run and no model."""
