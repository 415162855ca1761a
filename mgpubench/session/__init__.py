"""One call of `mgpubench run`, from a request to rows on disk."""
