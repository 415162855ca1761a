"""One process of a run: devices, data, model, clock and loop."""
