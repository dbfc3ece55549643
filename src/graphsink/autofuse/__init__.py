"""Operators become fused kernels.

Will hold lowering from ATen to the loop graph, the fusion solver with its legality and profit rules,
schedules and tiling. Writes one decision record per candidate, accepted or refused.
"""
