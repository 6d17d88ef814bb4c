"""`python -m firma` is the command `firma`."""

from firma.cli import main

main()
