"""Kernels become an execution plan.

Will hold memory planning (lifetimes, offsets in one arena), streams and dependencies, and the task
list. The plan is data of `graphsink.ir`; loading it is the work of `graphsink.runtime`.
"""
