"""Intermediate representations: data and verifiers only.

Will hold the graph contract (``torch.fx`` with functional ATen ops), the loop graph and the execution
plan. Passes over them live in the layers above; nothing here calls a compiler or a device.
"""
