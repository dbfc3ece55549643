"""Scheduled loop graphs become source code.

Will hold one C-like renderer and a folder of tables per target. What differs between targets is data:
rules and intrinsics, each beside its meaning in plain loops.
"""
