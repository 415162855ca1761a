"""`python -m mgpubench` is the same program as the `mgpubench` command."""

from mgpubench.cli import main

if __name__ == "__main__":
    main()
