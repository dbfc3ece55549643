"""Named passes over the graph IR: graph in, graph out.

Will hold what is decided about whole operators: canonical forms, dead code, repeated layers, placement
of in-place writes. Fusion into kernels is `graphsink.autofuse`.
"""
