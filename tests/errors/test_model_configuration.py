"""Models that cannot run are refused by name, before a weight is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphsink.config import ModelSection
from graphsink.engine.model.configuration import load_configuration
from graphsink.engine.model.model_source import ModelSource, SourceKind
from graphsink.errors import GraphsinkError, ModelFileError, RecipeValueError, UnsupportedModelError
from support.tiny_models import edit_json, family_values, write_model_directory


def refuse(values: dict[str, Any], kind: type[GraphsinkError], **section: Any) -> GraphsinkError:
    source = ModelSource(SourceKind.RANDOM, written="")
    with pytest.raises(kind) as caught:
        load_configuration(source, ModelSection(with_ckpt=False, hf_config=values, **section))
    return caught.value


def refuse_directory(directory: Path, kind: type[GraphsinkError], **section: Any) -> GraphsinkError:
    source = ModelSource(
        SourceKind.DIRECTORY, written="m", directory=directory, tokenizer_directory=directory
    )
    with pytest.raises(kind) as caught:
        load_configuration(source, ModelSection(model_path="m", **section))
    return caught.value


def test_an_unknown_type_names_the_nearest() -> None:
    error = refuse({"model_type": "qwen33"}, UnsupportedModelError)
    assert error.what == "transformers knows no model_type 'qwen33'"
    assert error.hint == "did you mean 'qwen3'?"
    assert error.where == "model_config.hf_config: model_type"


def test_a_missing_type() -> None:
    assert refuse({"hidden_size": 8}, ModelFileError).what == "the configuration has no 'model_type'"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"model_type": "mixtral", "num_local_experts": 8},
            "'mixtral' is a mixture-of-experts model (num_local_experts: 8)",
        ),
        ({"model_type": "qwen2_moe", "num_experts": 60}, "(num_experts: 60)"),
        ({"model_type": "deepseek_v3", "n_routed_experts": 256}, "(n_routed_experts: 256)"),
        ({"model_type": "ernie4_5_moe", "moe_num_experts": 64}, "(moe_num_experts: 64)"),
        ({"model_type": "dbrx", "ffn_config": {"moe_num_experts": 16}}, "(ffn_config.moe_num_experts: 16)"),
        ({"model_type": "gpt_oss", "num_local_experts": 32}, "(num_local_experts: 32)"),
    ],
)
def test_mixture_of_experts_is_refused_by_key_and_value(values: dict[str, Any], words: str) -> None:
    error = refuse(values, UnsupportedModelError)
    assert words in error.what
    assert "mixture of experts is not supported yet" in error.what


def test_an_encoder_decoder_model() -> None:
    error = refuse({"model_type": "t5", "is_encoder_decoder": True}, UnsupportedModelError)
    assert error.what == "'t5' is an encoder-decoder model; only decoder-only models run"


def test_a_model_that_does_not_generate_text() -> None:
    error = refuse({"model_type": "vit"}, UnsupportedModelError)
    assert error.what.startswith("'vit' is not a decoder-only text model")


def test_a_multimodal_model_names_its_text_twin() -> None:
    error = refuse({"model_type": "gemma3", "vision_config": {}}, UnsupportedModelError)
    assert "'gemma3' is a multimodal model (Gemma3ForConditionalGeneration, vision_config)" in error.what
    assert error.hint == "a text-only checkpoint of the same family has model_type 'gemma3_text'"


def test_a_quantised_checkpoint_names_its_method() -> None:
    values = family_values("llama") | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    error = refuse(values, UnsupportedModelError)
    assert error.what.startswith("the checkpoint is quantised (quant_method: gptq)")
    unnamed = refuse(family_values("llama") | {"quantization_config": {}}, UnsupportedModelError)
    assert unnamed.what.startswith("the checkpoint is quantised (quant_method: unnamed)")


def test_values_that_transformers_does_not_accept(tmp_path: Path) -> None:
    wrong = family_values("llama") | {"num_hidden_layers": "two"}
    assert "transformers does not accept the configuration" in refuse(wrong, RecipeValueError).what
    write_model_directory(tmp_path, family_values("llama"))
    edit_json(tmp_path / "config.json", hidden_size="wide")
    error = refuse_directory(tmp_path, ModelFileError)
    assert "transformers does not accept the configuration" in error.what
    assert "hidden_size" in error.what
    assert error.where == str(tmp_path / "config.json")


def test_more_layers_than_the_model_has() -> None:
    error = refuse(family_values("llama"), RecipeValueError, custom_params={"num_hidden_layers": 3})
    assert error.what == "num_hidden_layers is 3, but the model has 2 layers"
    assert isinstance(error, RecipeValueError)
    assert error.key == "model_config.custom_params.num_hidden_layers"


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_in_the_directory_is_refused_and_not_run(tmp_path: Path, name: str) -> None:
    write_model_directory(tmp_path, family_values("llama"))
    (tmp_path / "own_code.py").write_text("raise SystemExit('the code ran')\n")
    edit_json(tmp_path / name, auto_map={"AutoConfig": "own_code.OwnConfig"})
    error = refuse_directory(tmp_path, UnsupportedModelError)
    assert error.what == (
        "the model brings Python code of its own (AutoConfig: own_code.OwnConfig), which is not run"
    )
    assert error.where == f"{tmp_path / name}: auto_map"
    assert error.hint is not None
    assert "trust_remote_code: True" in error.hint


def test_code_in_another_repository_is_refused_even_if_switched_on(tmp_path: Path) -> None:
    write_model_directory(tmp_path, family_values("llama"))
    edit_json(tmp_path / "config.json", auto_map={"AutoConfig": "someone/else--code.Config"})
    error = refuse_directory(tmp_path, UnsupportedModelError, trust_remote_code=True)
    assert error.what.startswith("the model's code is in another repository")


def test_an_inline_configuration_cannot_bring_code() -> None:
    values = family_values("llama") | {"auto_map": {"AutoConfig": "x.Y"}}
    assert "cannot bring code" in refuse(values, UnsupportedModelError, trust_remote_code=True).what


@pytest.mark.parametrize(
    ("content", "words", "line"),
    [
        (b'{"model_type": "llama",\n "hidden', "'config.json' is not valid JSON", ":2"),
        (b"[1, 2]", "'config.json' holds a JSON list, not an object", ""),
        (b"\xff\xfe{}", "'config.json' is not UTF-8 text (byte 0)", ""),
        (b"", "'config.json' is not valid JSON", ":1"),
        (b"[" * 100_000, "'config.json' is nested too deeply", ""),
    ],
)
def test_a_damaged_config_file(tmp_path: Path, content: bytes, words: str, line: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    error = refuse_directory(tmp_path, ModelFileError)
    assert error.what.startswith(words)
    assert error.where == f"{tmp_path / 'config.json'}{line}"


def test_a_damaged_generation_config(tmp_path: Path) -> None:
    write_model_directory(tmp_path, family_values("llama"))
    (tmp_path / "generation_config.json").write_text("{")
    assert "'generation_config.json' is not valid JSON" in refuse_directory(tmp_path, ModelFileError).what
