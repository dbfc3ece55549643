"""Recipes: reading, validating, documenting; and the prompts of a run."""

from graphsink.recipe.legacy_keys import RecipeNote
from graphsink.recipe.loader import LoadedRecipe, load_recipe, recipe_from_dict, resolve_path
from graphsink.recipe.prompt_values import PromptItem
from graphsink.recipe.prompts import load_prompts, prompts_from_values, truncate_prompt
from graphsink.recipe.runnable import check_runnable

__all__ = [
    "LoadedRecipe",
    "PromptItem",
    "RecipeNote",
    "check_runnable",
    "load_prompts",
    "load_recipe",
    "prompts_from_values",
    "recipe_from_dict",
    "resolve_path",
    "truncate_prompt",
]
