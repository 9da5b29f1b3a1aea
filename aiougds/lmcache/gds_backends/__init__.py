"""A folder that the launcher appends to LMCache's own of the same name."""
