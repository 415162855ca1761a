"""Judgement: what the figures mean, and whether a difference is real."""
