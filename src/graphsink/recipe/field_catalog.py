"""Every recipe field as data: what the documentation shows and what error messages name.

The typed sections in ``graphsink.config`` are the only source; nothing is said twice.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from graphsink.config import EXECUTION_MODE_ALIASES, Recipe
from graphsink.config.custom_params import CustomParamsDict

CUSTOM_PARAMS_KEY = "model_config.custom_params"

_BOUNDS: tuple[tuple[str, str], ...] = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
_POWERS_SHOWN: Mapping[object, str] = {
    2**31 - 1: "2^31 - 1",
    2**63: "2^63",
    2**40: "2^40",
    2.0**20: "2^20",
}
_TYPE_NAMES: Mapping[object, str] = {str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field.

    Attributes:
        section: ``model_config``, …, or ``model_config.custom_params``.
        name: the key within the section.
        type_text: the accepted type, in YAML terms.
        check_text: range of the value; empty if any value of the type is accepted.
        choices: the accepted words, if the field is a choice (aliases included).
        default: the default as YAML would write it.
        origin: ``reference`` or ``graphsink``.
        effect: ``used``, ``graph_modes``, ``later`` or ``npu_only``.
        description: one sentence.
        accepts_text: whether any text is a value.
        accepts_null: whether ``null`` is a value.
        accepts_only_text: text (or null) and nothing else.
    """

    section: str
    name: str
    type_text: str
    check_text: str
    choices: tuple[str, ...]
    default: str
    origin: str
    effect: str
    description: str
    accepts_text: bool
    accepts_null: bool
    accepts_only_text: bool

    @property
    def key(self) -> str:
        """Dotted key path."""
        return f"{self.section}.{self.name}"


def section_models() -> dict[str, type[BaseModel]]:
    """YAML section name → its typed class, in the order of the recipe."""
    return {
        str(info.alias): info.annotation
        for info in Recipe.model_fields.values()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
    }


@cache
def field_catalog() -> Mapping[str, FieldRow]:
    """All fields by dotted key, in the order of the recipe; the known custom parameters at the end."""
    rows = [
        _row(section, name, info)
        for section, model in section_models().items()
        for name, info in model.model_fields.items()
    ]
    hints = get_type_hints(CustomParamsDict, include_extras=True)
    rows += [_row(CUSTOM_PARAMS_KEY, name, FieldInfo.from_annotation(hint)) for name, hint in hints.items()]
    return types.MappingProxyType({row.key: row for row in rows})


def _row(section: str, name: str, info: FieldInfo) -> FieldRow:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    members = _union_members(info.annotation)
    kept = [member for member in members if member is not type(None)]
    choices = tuple(
        str(word) for member in kept if get_origin(member) is Literal for word in get_args(member)
    )
    if name == "exe_mode":
        choices += tuple(EXECUTION_MODE_ALIASES)
    return FieldRow(
        section=section,
        name=name,
        type_text=type_text(info.annotation),
        check_text=_bounds_text(info.metadata) or _inner_bounds_text(members),
        choices=choices,
        default=str(extra["default"])
        if "default" in extra
        else _yaml_text(info.get_default(call_default_factory=True)),
        origin=str(extra["origin"]),
        effect=str(extra["effect"]),
        description=info.description or "",
        accepts_text=str in kept,
        accepts_null=type(None) in members,
        accepts_only_text=kept == [str],
    )


def type_text(annotation: Any) -> str:
    """The accepted type in YAML terms: ``int | auto``, ``list[str]``, ``eager | capture``."""
    return " | ".join(_member_text(member) for member in _union_members(annotation))


def _member_text(member: Any) -> str:
    origin = get_origin(member)
    if origin is Annotated:
        return type_text(get_args(member)[0])
    if origin is Literal:
        return " | ".join(str(word) for word in get_args(member))
    if origin is list:
        return f"list[{type_text(get_args(member)[0])}]"
    return _TYPE_NAMES.get(member, "mapping")


def _union_members(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _bounds_text(metadata: Iterable[object]) -> str:
    parts = []
    for item in metadata:
        if isinstance(item, FieldInfo):
            return _bounds_text(item.metadata)
        for attribute, sign in _BOUNDS:
            if isinstance(item, annotated_types.BaseMetadata) and hasattr(item, attribute):
                bound = getattr(item, attribute)
                parts.append(f"{sign} {_POWERS_SHOWN.get(bound, f'{bound:g}')}")
    return " and ".join(parts)


def _inner_bounds_text(members: tuple[Any, ...]) -> str:
    """Range of the integers within ``Annotated[int, …] | …`` and ``list[Annotated[int, …]]``."""
    for member in members:
        if get_origin(member) is Annotated:
            return _bounds_text(get_args(member)[1:])
        if get_origin(member) is list:
            inner = _inner_bounds_text(_union_members(get_args(member)[0]))
            return f"each {inner}" if inner else ""
    return ""


def _yaml_text(value: object) -> str:
    if value is None:
        return "null"
    if value == "":
        return '""'
    return str(value)


def type_name(value: object) -> str:
    """The YAML name of a value's type, for messages."""
    if isinstance(value, bool):
        return "bool"
    for kind, name in typing.cast(
        "tuple[tuple[type, str], ...]", ((str, "str"), (int, "int"), (float, "float"))
    ):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "list" if isinstance(value, (list, tuple)) else "mapping"


def preview(value: object) -> str:
    """A value as messages show it: at most about 60 characters."""
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
