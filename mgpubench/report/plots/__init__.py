"""Pictures of a comparison. matplotlib is imported when one is drawn, and never before."""
