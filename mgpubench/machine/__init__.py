"""The computer: its cores, its GPUs, its software, and what on it will hurt a benchmark."""
