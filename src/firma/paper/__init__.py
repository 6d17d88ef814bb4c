"""The FIRMA paper: its grid, what it printed, its claims and our judgement of them, and advice. Only `cli` uses it.

grid.py lists the cells, published.py has what the paper printed. claims.py lists the claims; claim_checks.py,
claim_curves.py, claim_figures.py, claim_rings.py and claim_maths.py check them, by the rules of judging.py.
reproduction.py writes docs/reproduction.md and, with claims_page.py, correspondences.py, differences.py and lead.py,
the pages beside it; report.py draws the paper's own tables and figures, page.py adds them to the page of a study.
advice.py recommends a method.
"""
