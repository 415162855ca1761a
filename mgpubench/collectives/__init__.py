"""What one process of a run does to measure collectives."""
