"""What parses but cannot run in this version."""

from __future__ import annotations

from graphsink.config import BUILT_EXECUTION_MODES, Recipe
from graphsink.errors import NotSupportedError


def check_runnable(recipe: Recipe) -> None:
    """Refuse a valid recipe that this version cannot run.

    Raises:
        NotSupportedError: an execution mode that is not built yet, several ranks, draft tokens, a data
            set of the reference, or a device other than the CPU. The message names the key and its
            value.
    """
    cases: tuple[tuple[bool, str, object, str], ...] = (
        (
            recipe.parallel.world_size > 1,
            "parallel_config.world_size",
            recipe.parallel.world_size,
            "set it to 1 (and the sizes that must divide it)",
        ),
        (recipe.model.next_n > 0, "model_config.next_n", recipe.model.next_n, "set it to 0"),
        (
            recipe.data.dataset != "default",
            "data_config.dataset",
            recipe.data.dataset,
            "use 'default' and give the prompts in data_config.prompts",
        ),
        (recipe.model.device != "cpu", "model_config.device", recipe.model.device, "use 'cpu'"),
    )
    for refused, key, value, hint in cases:
        if refused:
            raise NotSupportedError(f"{key}: {value} is not yet supported", where=key, hint=hint)
    if recipe.model.exe_mode not in BUILT_EXECUTION_MODES:
        raise NotSupportedError(
            f"exe_mode '{recipe.model.exe_mode}' is not built yet in this version",
            where="model_config.exe_mode",
            hint=f"use exe_mode: {' or '.join(sorted(BUILT_EXECUTION_MODES))}",
        )
