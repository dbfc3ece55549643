"""What runs: facts about the machine, measurements of its limits, the native toolchain.

This layer knows the native module (``graphsink._native``), cores and memory; it does not know torch.
Devices, tasks, graph instances and traces join here.
"""
