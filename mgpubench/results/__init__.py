"""What comes out, on disk: the columns, and how files are written and read."""
