"""How a model becomes a graph.

Will hold the ways in: direct tracing by the engine, the ``torch.compile`` entry, and capture of a
stream of operators. All of them end in the graph contract of `graphsink.ir`.
"""
