"""Mixing: how clients combine what they share, one module per kind.

Each kind (`ring`, `star`, `all_reduce`, `all_gather`, `alone`) holds the four things that must agree: its matrix (the
simulation), its exchange (the protocol), what a member may expect to receive (real peers), and its cost in messages and
bytes. `kind.kind_of` maps a plan's mixing to its module; `combine` has what is not linear.
"""
