"""Every error that graphsink raises on purpose.

::

    GraphsinkError
    ├── RecipeError                what the user wrote in a recipe, a prompt file or on the command line
    │   ├── RecipeSyntaxError      the file is not a readable recipe (YAML, size, encoding)
    │   ├── RecipeValueError       a key or a value in it is not acceptable
    │   └── PromptError            prompts that cannot be turned into requests
    ├── NotSupportedError          asked for correctly, but this version or this device cannot do it
    │   └── UnsupportedModelError  the model needs something that is not implemented; refused by name
    ├── ModelError                 the model on disk
    │   ├── ModelFileError         missing, truncated, damaged or mismatched files
    │   └── TokenizerError         no usable tokenizer where one is needed
    ├── CapacityError              memory or KV cache too small; carries needed and available
    ├── CacheDirectoryError        the cache directory is unusable or not safe to use
    ├── DeviceError                processor, instruction set, native module
    │   ├── IsaError               an instruction-set level that this processor lacks, or an unknown one
    │   ├── ForkedDeviceError      a device is used in a process that was forked after it was made
    │   ├── DeviceMemoryError      wrong use of device memory: freed twice, wrong size, no longer alive
    │   ├── KernelLibraryError     a kernel or a kernel library that cannot be used
    │   ├── GraphLoadError         a task list that cannot run
    │   ├── InstanceStateError     an instance is used in a state that forbids it
    │   └── ExecutionError         an execution ended before its end; names the task
    │       ├── TaskFailedError    a kernel or a call reported a fault
    │       ├── ExecutionAbortedError   it was aborted
    │       └── ExecutionTimeoutError   it ran out of time
    ├── SampleError                the sample model could not be fetched or converted
    ├── EngineError                generation
    │   ├── NonFiniteLogitsError   the model produced NaN or infinity
    │   ├── StaleWeightsError      weights changed after they were bound
    │   ├── KVCacheError           misuse of the block pool (double free, unknown request)
    │   ├── EngineBusyError        a second generation was started while one is running
    │   └── GenerationFailedError  the model's forward raised; carries what had been generated
    └── InternalError              a bug in graphsink; the message says what to report

A message has up to three parts, each on its own line when printed: what failed, where in the user's
input, and what to change.
"""

from __future__ import annotations


class GraphsinkError(Exception):
    """Base of all graphsink errors.

    Args:
        what: what failed, in one sentence, with the numbers that matter.
        where: the place in the user's input: ``file:line``, a key path, a tensor name.
        hint: what the user can change.
    """

    exit_code: int = 1
    """Exit code of the command line for this class of error (2: the input was wrong)."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"  at: {self.where}")
        if self.hint:
            parts.append(f"  fix: {self.hint}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(kind: type[GraphsinkError], state: dict[str, object]) -> GraphsinkError:
    """Recreate an error from its attributes (used when it crosses a process boundary)."""
    error = kind.__new__(kind)
    Exception.__init__(error, state.get("what", ""))
    error.__dict__.update(state)
    return error


class RecipeError(GraphsinkError):
    """The recipe, the prompt file or a command-line override is wrong."""

    exit_code = 2


class RecipeSyntaxError(RecipeError):
    """The file is not a readable recipe."""


class RecipeValueError(RecipeError):
    """A key is unknown, or a value has the wrong type or range.

    Attributes:
        key: dotted key path (``model_config.exe_mode``).
        file: the recipe file, if the value came from one.
        line: 1-based line in that file.
        suggestion: nearest valid key or value, if there is one.
    """

    def __init__(
        self,
        what: str,
        *,
        key: str | None = None,
        file: str | None = None,
        line: int | None = None,
        suggestion: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.key = key
        self.file = file
        self.line = line
        self.suggestion = suggestion
        place = file if line is None else f"{file or '<recipe>'}:{line}"
        where = ", ".join(part for part in (place, key) if part) or None
        if suggestion is not None and hint is None:
            hint = f"did you mean '{suggestion}'?"
        super().__init__(what, where=where, hint=hint)


class PromptError(RecipeError):
    """A prompt is empty, unreadable or of the wrong type."""


class NotSupportedError(GraphsinkError):
    """The request is well formed, but this version or device cannot do it."""

    exit_code = 2


class UnsupportedModelError(NotSupportedError):
    """The model needs something that is not implemented; nothing was loaded."""


class ModelError(GraphsinkError):
    """The model on disk cannot be used."""

    exit_code = 2


class ModelFileError(ModelError):
    """A model file is missing, truncated, damaged or does not match the configuration."""


class TokenizerError(ModelError):
    """No usable tokenizer where one is needed."""


class CapacityError(GraphsinkError):
    """Memory or KV capacity is too small.

    Attributes:
        needed: bytes (or blocks, see ``unit``) that would be needed.
        available: bytes (or blocks) that there are.
        unit: ``"bytes"``, ``"blocks"`` or ``"tokens"``.
    """

    def __init__(
        self,
        what: str,
        *,
        needed: int,
        available: int,
        unit: str = "bytes",
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.needed = needed
        self.available = available
        self.unit = unit
        super().__init__(
            f"{what} (needed {needed:,} {unit}, available {available:,} {unit})",
            where=where,
            hint=hint,
        )


class CacheDirectoryError(GraphsinkError):
    """The cache directory cannot be used, or is not safe to use."""


class DeviceError(GraphsinkError):
    """The processor or the native module cannot do what was asked."""


class IsaError(DeviceError):
    """An instruction-set level is unknown, or this processor does not have it."""

    exit_code = 2


class ForkedDeviceError(DeviceError):
    """A device is used in a process that was forked after it was made; its threads are not there."""


class DeviceMemoryError(DeviceError):
    """Device memory was freed twice, is too small for its use, or no longer exists."""


class KernelLibraryError(DeviceError):
    """A kernel is unknown, or a kernel library lacks a symbol or was built for another interface."""


class GraphLoadError(DeviceError):
    """A task list that cannot run; the message names the task."""


class InstanceStateError(DeviceError):
    """A graph instance is used in a state that forbids it.

    Attributes:
        state: the state it is in: ``NONE``, ``READY``, ``RUNNING`` or ``FAULT``.
    """

    def __init__(self, what: str, *, state: str, where: str | None = None, hint: str | None = None) -> None:
        self.state = state
        super().__init__(f"{what} (state {state})", where=where, hint=hint)


class ExecutionError(DeviceError):
    """An execution ended before its end.

    Attributes:
        task: name of the task that failed or was waited for.
        module_path: where in the user's model the task came from; may be empty.
        code: what the kernel or call reported; 0 if nothing did.
        core: the core of the device that noticed.
    """

    def __init__(
        self,
        what: str,
        *,
        task: str,
        module_path: str = "",
        code: int = 0,
        core: int = 0,
        hint: str | None = None,
    ) -> None:
        self.task = task
        self.module_path = module_path
        self.code = code
        self.core = core
        super().__init__(what, where=module_path or None, hint=hint)


class TaskFailedError(ExecutionError):
    """A kernel or a call reported a fault; the rest of the graph did not run."""


class ExecutionAbortedError(ExecutionError):
    """The execution was aborted."""


class ExecutionTimeoutError(ExecutionError, TimeoutError):
    """The execution ran out of time; the message says what every core was doing."""


class SampleError(GraphsinkError):
    """The sample model could not be fetched or converted."""


class EngineError(GraphsinkError):
    """Generation failed."""


class NonFiniteLogitsError(EngineError):
    """The model produced NaN or infinite logits for a request."""


class StaleWeightsError(EngineError):
    """Weights were written or moved after the engine had bound them."""


class KVCacheError(EngineError):
    """The KV block pool was misused."""


class EngineBusyError(EngineError):
    """The engine is already generating in another thread."""


class GenerationFailedError(EngineError):
    """The model's forward raised (its exception is the cause).

    Attributes:
        outputs: what had been generated, as ``list[RequestOutput]``; set by `graphsink.LLM.generate`.
    """

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        self.outputs: list[object] = []
        super().__init__(what, hint=hint)


class InternalError(GraphsinkError):
    """A bug in graphsink."""
