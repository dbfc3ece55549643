"""Surprises of the engine, each with what protects the user, or what does not.

Loud: an error or a note says what happened. Silent: nothing is said; those are written down here and in the
documentation, and there should be none that gives wrong output.
"""

from __future__ import annotations

import pytest
import torch

from graphsink import SamplingParams
from graphsink.errors import StaleWeightsError
from support.tiny_llm import tiny_llm

PROMPT = [5, 6, 7]


def test_loud_in_place_writes_to_weights() -> None:
    """`mul_` after loading is noticed at the next call."""
    with tiny_llm() as llm:
        with torch.no_grad():
            llm.model.module.get_submodule("lm_head").weight.mul_(2.0)  # type: ignore[operator]
        with pytest.raises(StaleWeightsError):
            llm.generate(PROMPT)


def test_silent_writes_through_data() -> None:
    """`.data` has no version counter. Eager mode uses the new values, so nothing is wrong; graph modes need
    `refresh_weights()`, which is accepted here, too."""
    with tiny_llm() as llm:
        before = llm.generate(PROMPT)[0].token_ids
        llm.model.module.get_submodule("lm_head").weight.data.neg_()  # type: ignore[operator]
        unseen = llm.generate(PROMPT)[0].token_ids
        assert unseen != before
        llm.refresh_weights()
        assert llm.generate(PROMPT)[0].token_ids == unseen


def test_silent_sampling_params_replace_the_recipe() -> None:
    """A `SamplingParams` object is complete: its defaults win over the recipe's values. A mapping does not
    do that."""
    with tiny_llm(scheduler={"max_new_tokens": 3}) as llm:
        assert len(llm.generate(PROMPT, SamplingParams())[0].token_ids) == 32
        assert len(llm.generate(PROMPT, {})[0].token_ids) == 3


def test_loud_results_are_snapshots() -> None:
    """Outputs of an earlier call are not overwritten by a later one."""
    with tiny_llm() as llm:
        first = llm.generate(PROMPT)
        kept = list(first[0].token_ids)
        llm.generate([9, 9, 9, 9])
        assert first[0].token_ids == kept


def test_silent_prompts_of_the_recipe_are_not_repeated_but_default_prompts_are() -> None:
    """As in the reference, default prompts fill the batch; those that a user wrote are taken as they are."""
    with tiny_llm(scheduler={"batch_size": 4}, data={"prompts": [PROMPT]}) as llm:
        assert len(llm.generate()) == 1


def test_loud_the_seed_of_a_recipe_counts_up() -> None:
    """Two equal prompts with one seed must not give equal samples; the report shows the seeds' rule."""
    with tiny_llm(data={"temperature": 1.0, "seed": 3, "prompts": [PROMPT, PROMPT]}) as llm:
        first, second = llm.generate()
        assert first.token_ids != second.token_ids
        assert [o.token_ids for o in llm.generate()] == [first.token_ids, second.token_ids]
