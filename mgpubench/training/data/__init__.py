"""Images and labels: listing a folder, decoding, and loading in batches."""
