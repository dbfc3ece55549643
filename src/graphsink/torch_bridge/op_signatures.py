"""Schemas of ATen operators as C prototypes: what the typed functions of the stable C shim look like.

torch generates one function for each of a fixed list of operators, ``aoti_torch_cpu_<op>_<overload>``,
with parameters that follow from the operator's schema. The rules are written down once, in
``PARAMETERS``; a test compares the prototypes that follow from them with the headers that torch ships.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Argument, FunctionSchema

SYMBOL_PREFIXES = ("aoti_torch_cpu_", "aoti_torch_aten_")


@dataclass(frozen=True, slots=True)
class Parameter:
    """C parameters that one schema argument turns into.

    Attributes:
        word: one letter each, see csrc/extern/typed_calls.h.
        declaration: C text with ``{name}`` for the argument's name.
    """

    word: str
    declaration: str


def _list(element: str) -> Parameter:
    return Parameter("PL", f"const {element} {{name}}, int64_t {{name}}_len_")


PARAMETERS = {
    "Tensor": Parameter("P", "AtenTensorHandle {name}"),
    "int": Parameter("L", "int64_t {name}"),
    "bool": Parameter("I", "int32_t {name}"),
    "float": Parameter("D", "double {name}"),
    "number": Parameter("D", "double {name}"),
    "str": Parameter("P", "const char* {name}"),
    "ScalarType": Parameter("I", "int32_t {name}"),
    "MemoryFormat": Parameter("I", "int32_t {name}"),
    "Optional[Tensor]": Parameter("P", "AtenTensorHandle* {name}"),
    "Optional[int]": Parameter("P", "int64_t* {name}"),
    "Optional[bool]": Parameter("P", "int32_t* {name}"),
    "Optional[float]": Parameter("P", "double* {name}"),
    "Optional[number]": Parameter("P", "double* {name}"),
    "Optional[str]": Parameter("P", "const char** {name}"),
    "Optional[ScalarType]": Parameter("P", "int32_t* {name}"),
    "Optional[Layout]": Parameter("P", "int32_t* {name}"),
    "Optional[MemoryFormat]": Parameter("P", "int32_t* {name}"),
    "Optional[Generator]": Parameter("P", "AtenGeneratorHandle* {name}"),
    "Optional[Device]": Parameter("PI", "int32_t* {name}, int32_t {name}_index_"),
    "List[int]": _list("int64_t*"),
    "List[bool]": _list("int32_t*"),
    "List[float]": _list("double*"),
    "List[Tensor]": _list("AtenTensorHandle*"),
    "List[Optional[Tensor]]": _list("AtenTensorHandle**"),
    "Optional[List[int]]": _list("int64_t**"),
    "Optional[List[float]]": _list("double**"),
}


@dataclass(frozen=True, slots=True)
class Prototype:
    """A typed function of the shim.

    Attributes:
        word: one letter per parameter, results included.
        parameters: the C parameter list.
    """

    word: str
    parameters: str


def schema_type(argument: Argument) -> str:
    """Type of an argument as a key of ``PARAMETERS``; SymInt counts as int."""
    return str(argument.real_type).replace("SymInt", "int")


def call_order(schema: FunctionSchema) -> list[Argument]:
    """Arguments in the order of the typed function: results to write come first."""
    return sorted(schema.arguments, key=lambda argument: not argument.is_out)


def has_scalar(schema: FunctionSchema) -> bool:
    """Whether an argument is a Scalar, which the dispatcher's shim refuses."""
    return any("number" in schema_type(argument) for argument in schema.arguments)


def fresh_returns(schema: FunctionSchema) -> list[Argument]:
    """Returned values that are not one of the arguments that the operator writes."""
    return [value for value in schema.returns if value.alias_info is None or not value.alias_info.is_write]


def typed_prototype(schema: FunctionSchema) -> Prototype | None:
    """The prototype that follows from a schema, or ``None`` where the rules do not cover it."""
    known = [PARAMETERS.get(schema_type(argument)) for argument in call_order(schema)]
    if any(parameter is None for parameter in known):
        return None
    if any(schema_type(value) != "Tensor" for value in schema.returns):
        return None
    results = fresh_returns(schema)
    if results and len(results) != len(schema.returns):
        return None
    parameters = [parameter for parameter in known if parameter is not None]
    declarations = [
        parameter.declaration.format(name=argument.name)
        for parameter, argument in zip(parameters, call_order(schema), strict=True)
    ]
    declarations += [f"AtenTensorHandle* ret{index}" for index in range(len(results))]
    word = "".join(parameter.word for parameter in parameters) + "P" * len(results)
    return Prototype(word, ", ".join(declarations))


def typed_symbols(schema: FunctionSchema) -> list[str]:
    """Names that a typed function for this schema could have."""
    name = schema.name.removeprefix("aten::")
    suffix = f"_{schema.overload_name}" if schema.overload_name else ""
    return [f"{prefix}{name}{suffix}" for prefix in SYMBOL_PREFIXES]
