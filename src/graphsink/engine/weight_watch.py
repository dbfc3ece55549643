"""Notice that weights were written or moved after the engine was set up.

A captured instance has the addresses of weights in its tasks and may have packed copies of their
values, so a change behind its back gives silent wrong output. Version counters tell in-place writes
(``mul_``, ``copy_``, ``load_state_dict``), addresses tell replaced tensors. Writes through ``.data`` or
through memory shared with numpy cannot be seen; ``refresh_weights()`` is for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphsink.errors import StaleWeightsError


@dataclass(frozen=True, slots=True)
class _Snapshot:
    address: int
    version: int
    shape: torch.Size
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> _Snapshot:
        return cls(tensor.data_ptr(), tensor._version, tensor.shape, tensor.dtype)


class WeightWatch:
    """Remembers address and version of every parameter of a model.

    Args:
        model: the module to watch.
        allow_updates: rebind on a change instead of raising.
    """

    def __init__(self, model: nn.Module, *, allow_updates: bool) -> None:
        self._model = model
        self._allow_updates = allow_updates
        self._snapshots = self._take()
        self.rebinds = 0

    def refresh(self) -> None:
        """Take the present weights as the bound ones."""
        self._snapshots = self._take()
        self.rebinds += 1

    def check(self) -> None:
        """Compare with what was bound.

        Raises:
            StaleWeightsError: naming the tensors, unless updates are allowed.
        """
        changed = self._changed()
        if not changed:
            return
        if self._allow_updates:
            self.refresh()
            return
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise StaleWeightsError(
            f"weights changed after loading: {shown}",
            hint="call refresh_weights() after writing them, or set model_config.allow_weight_updates: True",
        )

    def _changed(self) -> list[str]:
        present = self._take()
        names = [name for name in self._snapshots if present.get(name) != self._snapshots[name]]
        return names + [name for name in present if name not in self._snapshots]

    def _take(self) -> dict[str, _Snapshot]:
        # Buffers may be rebuilt by the model itself (rotary frequencies), so only parameters are watched.
        return {name: _Snapshot.of(parameter) for name, parameter in self._model.named_parameters()}
