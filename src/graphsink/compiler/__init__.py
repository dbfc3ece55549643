"""The pipeline: calls the rooms in order, and keeps keys and the cache of plans.

Will hold one file that can be read from top to bottom: frontend, graph, autofuse, codegen, planner,
runtime. Modes that are not built yet are refused here, never run as something else.
"""
