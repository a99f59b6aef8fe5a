"""What a project keeps beyond its runs: artifacts and records, committed in batches."""
