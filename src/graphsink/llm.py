"""The Python interface: ``graphsink.LLM(recipe).generate(prompts)``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from graphsink.config import SamplingParams
from graphsink.config.interrupts import deferred_interrupts
from graphsink.engine.engine import Engine
from graphsink.engine.metrics import GenerationMetrics, WarmupReport
from graphsink.engine.model.loading import load_model
from graphsink.engine.process_state import torch_threads
from graphsink.engine.request import Request, RequestOutput, TokenEvent
from graphsink.errors import EngineError, GenerationFailedError, PromptError, RecipeValueError
from graphsink.recipe.loader import LoadedRecipe, load_recipe, recipe_from_dict
from graphsink.recipe.prompt_values import PromptItem
from graphsink.recipe.prompts import load_prompts, prompts_from_values, truncate_prompt
from graphsink.recipe.runnable import check_runnable
from graphsink.runtime.machine import machine_facts, memory_facts

Prompt = str | Sequence[int] | PromptItem
Prompts = Prompt | Sequence[Prompt]
Sampling = SamplingParams | Mapping[str, Any] | Sequence[SamplingParams | Mapping[str, Any]]
OnToken = Callable[[TokenEvent], None]


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """What loading is doing.

    Attributes:
        phase: ``"weights"`` or ``"warm-up"``.
        fraction: share of the phase that is done, 0 to 1.
    """

    phase: str
    fraction: float


class GenerationInterrupted(KeyboardInterrupt):
    """Ctrl-C during generation; ``outputs`` holds what had been generated.

    A subclass of `KeyboardInterrupt`, so programs that do not know it end as usual.
    """

    def __init__(self, outputs: list[RequestOutput]) -> None:
        super().__init__("interrupted")
        self.outputs = outputs


class LLM:
    """A recipe, loaded and warmed up.

    Args:
        recipe: path of a recipe file, a mapping with its sections, or a `LoadedRecipe`.
        overrides: values for single fields, by dotted key: ``{"scheduler_config.batch_size": 4}``.
        on_progress: called while weights are read and during warm-up.

    Raises:
        RecipeError: the recipe or an override is wrong.
        NotSupportedError: the recipe asks for what this version or device cannot do.
        ModelError, CapacityError: the model cannot be loaded.

    Attributes:
        load_s, warmup: what starting cost.
        metrics: of the last `generate` or `stream` call.
    """

    def __init__(
        self,
        recipe: str | Path | Mapping[str, Any] | LoadedRecipe,
        overrides: Mapping[str, object] | None = None,
        *,
        on_progress: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        self.loaded_recipe = _load(recipe, overrides)
        self.recipe = self.loaded_recipe.recipe
        check_runnable(self.recipe)
        self._report = on_progress or (lambda _: None)
        self.threads = _choose_threads(self.recipe.model.threads)
        started = time.perf_counter()
        with torch_threads(self.threads):
            self.model = load_model(
                self.recipe,
                self.loaded_recipe.base_directory,
                available_bytes=_available_bytes,
                progress=lambda fraction: self._report(LoadProgress("weights", fraction)),
            )
        self._engine: Engine | None = Engine(
            self.model, self.recipe, threads=self.threads, available_bytes=_available_bytes()
        )
        self.load_s = time.perf_counter() - started
        self._report(LoadProgress("warm-up", 0.0))
        self.warmup: WarmupReport = self.engine.warm_up()
        self._report(LoadProgress("warm-up", 1.0))
        self.metrics = GenerationMetrics()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release weights and KV cache. Generating afterwards is an `EngineError`."""
        if self._engine is not None:
            self._engine = None
            del self.model

    @property
    def engine(self) -> Engine:
        """The engine; raises `EngineError` after `close`."""
        if self._engine is None:
            raise EngineError("this LLM was closed", hint="load it again with graphsink.LLM(...)")
        return self._engine

    @property
    def notes(self) -> list[str]:
        """Fields without effect here, and what loading the model had to say."""
        return [str(note) for note in self.loaded_recipe.notes] + list(self.engine.model.notes)

    def generate(
        self,
        prompts: Prompts | None = None,
        sampling: Sampling | None = None,
        on_token: OnToken | None = None,
    ) -> list[RequestOutput]:
        """Generate for all prompts; continuous batching up to ``scheduler_config.batch_size``.

        Args:
            prompts: a text, a list of token ids, or a list of these; ``None`` takes the recipe's.
            sampling: for all prompts, or one per prompt. A mapping changes single values of the recipe's
                sampling; `SamplingParams` replaces it as a whole.
            on_token: called as each token is made.

        Returns:
            one result per prompt, in their order. A prompt that cannot be served has
            ``finish_reason`` ``prompt_too_long`` or ``error``; the others are not affected.

        Raises:
            PromptError: a prompt is empty or has token ids outside the vocabulary.
            EngineBusyError, StaleWeightsError: see `graphsink.errors`.
            GenerationInterrupted: Ctrl-C; carries the partial results.
            GenerationFailedError: the model raised; carries the partial results.
        """
        started = time.perf_counter()
        requests = self._requests(prompts, sampling)
        with self.engine.generating(requests, started) as generation, deferred_interrupts() as interrupt:
            self.metrics = generation.metrics
            # Held by name: an iterator that only the loop holds is closed before the handler below runs.
            events = generation.events()
            try:
                for event in events:
                    if on_token is not None:
                        on_token(event)
                    interrupt.check()
            except KeyboardInterrupt:
                generation.abort("interrupted")
                raise GenerationInterrupted(generation.outputs()) from None
            except GenerationFailedError as error:
                error.outputs = list(generation.outputs())
                raise
            return generation.outputs()

    def stream(
        self, prompts: Prompts | None = None, sampling: Sampling | None = None
    ) -> Iterator[TokenEvent]:
        """Like `generate`, as an iterator of token events; closing it ends the generation."""
        started = time.perf_counter()
        requests = self._requests(prompts, sampling)
        with self.engine.generating(requests, started) as generation:
            self.metrics = generation.metrics
            yield from generation.events()

    def refresh_weights(self) -> None:
        """Take the present weights as the bound ones, after writing them through ``.data`` or in place."""
        self.engine.weights.refresh()

    def _requests(self, prompts: Prompts | None, sampling: Sampling | None) -> list[Request]:
        items = load_prompts(self.loaded_recipe, ()) if prompts is None else _as_items(prompts)
        return [
            self._request(item, params, number)
            for number, (item, params) in enumerate(
                zip(items, self._sampling(sampling, len(items)), strict=True)
            )
        ]

    def _request(self, item: PromptItem, sampling: SamplingParams, number: int) -> Request:
        token_ids = list(item.token_ids) if item.token_ids is not None else self._encode(item, number)
        token_ids, cut = truncate_prompt(token_ids, self.recipe.data.input_truncated_len)
        try:
            return self.engine.new_request(token_ids, sampling, prompt=item.text, truncated_tokens=cut)
        except PromptError as error:
            raise PromptError(error.what, where=item.source, hint=error.hint) from error

    def _encode(self, item: PromptItem, number: int) -> list[int]:
        tokenizer = self.model.tokenizer
        if tokenizer is None:
            raise PromptError(
                f"prompt {number + 1} is text, but the model has no tokenizer",
                where=item.source,
                hint="give token ids, or set model_config.tokenizer_path",
            )
        data = self.recipe.data
        return tokenizer.encode_prompt(
            item.text or "",
            apply_chat_template=data.apply_chat_template,
            system_prompt=data.system_prompt,
            enable_thinking=data.enable_thinking,
        )

    def _sampling(self, sampling: Sampling | None, count: int) -> list[SamplingParams]:
        if sampling is None:
            return [self._recipe_sampling(number) for number in range(count)]
        if not isinstance(sampling, SamplingParams | Mapping | list | tuple):
            raise PromptError(
                f"sampling is given as {type(sampling).__name__}",
                hint="give SamplingParams, a mapping, or a list of these",
            )
        each = [sampling] * count if isinstance(sampling, SamplingParams | Mapping) else list(sampling)
        if len(each) != count:
            raise PromptError(f"{len(each)} sampling parameters for {count} prompts")
        common = isinstance(sampling, Mapping)
        return [self._one_sampling(params, number, common) for number, params in enumerate(each)]

    def _one_sampling(
        self, params: SamplingParams | Mapping[str, Any], number: int, common: bool
    ) -> SamplingParams:
        """What one prompt gets; a seed that is given once for all prompts counts up, as the recipe's does."""
        if isinstance(params, SamplingParams):
            return params
        values = {**self._recipe_sampling(number).model_dump(), **params}
        if common and isinstance(params.get("seed"), int):
            values["seed"] = params["seed"] + number
        return _validated_sampling(values)

    def _recipe_sampling(self, number: int) -> SamplingParams:
        data, scheduler = self.recipe.data, self.recipe.scheduler
        return SamplingParams(
            max_new_tokens=scheduler.max_new_tokens,
            temperature=data.temperature,
            top_k=data.top_k,
            top_p=data.top_p,
            seed=None if data.seed is None else data.seed + number,
            ignore_eos=scheduler.ignore_eos,
            stop=tuple(data.stop),
            logprobs=data.logprobs,
        )


def _load(
    recipe: str | Path | Mapping[str, Any] | LoadedRecipe, overrides: Mapping[str, object] | None
) -> LoadedRecipe:
    if isinstance(recipe, LoadedRecipe):
        if overrides:
            raise RecipeValueError("overrides go to load_recipe() when the recipe is already loaded")
        return recipe
    if not isinstance(recipe, str | Path | Mapping):
        raise RecipeValueError(
            f"a recipe is given as {type(recipe).__name__}", hint="give a path or a mapping"
        )
    if isinstance(recipe, Mapping):
        return recipe_from_dict(recipe, overrides or {})
    return load_recipe(Path(recipe), overrides or {})


def _as_items(prompts: Prompts) -> list[PromptItem]:
    """One prompt, or a list of prompts; a list that starts with an integer is one prompt of token ids."""
    if isinstance(prompts, PromptItem):
        return [prompts]
    if isinstance(prompts, list | tuple) and prompts:
        if isinstance(prompts[0], PromptItem):
            return list(prompts)
        if isinstance(prompts[0], int):
            return prompts_from_values([prompts])
    return prompts_from_values(prompts)


def _validated_sampling(values: dict[str, Any]) -> SamplingParams:
    try:
        return SamplingParams.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise RecipeValueError(f"sampling parameter '{key}': {first['msg']}", key=key) from error


def _choose_threads(threads: int | str) -> int:
    """``"auto"`` is what affinity and quota allow; never more than there are cores."""
    facts = machine_facts()
    if threads == "auto":
        return facts.threads
    count = int(threads)
    if count > len(facts.cores):
        raise RecipeValueError(
            f"{count} threads are more than the {len(facts.cores)} cores that this process may use",
            key="model_config.threads",
            hint=f"use auto, or at most {len(facts.cores)}",
        )
    return count


def _available_bytes() -> int:
    return memory_facts().available_bytes
