"""The FIRMA paper: its grid, what it printed, its claims and our judgement of them, and advice. Only `cli` uses it."""
