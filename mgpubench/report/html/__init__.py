"""The page of `mgpubench report`: one file that answers, explains, and shows all runs."""
