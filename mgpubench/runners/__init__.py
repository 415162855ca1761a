"""One module a mode, all with the same outline: what differs between two is the technique."""
