"""Findings: what the reader of a figure must know. Each kind of finding has one place here."""
