"""What goes in: the words of the field, a request, a plan, and the final configuration of a run."""
