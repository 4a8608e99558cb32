class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, or of a kind that cannot be read."""
