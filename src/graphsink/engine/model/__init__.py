"""Models on disk: where they are, whether they can run, their weights and their tokenizer.

The way in is `resolve_source` → `materialize` (GGUF only) → `load_configuration` → the architecture
probe → `load_weights` and `load_tokenizer`. Everything that can be refused is refused before weights
are read.
"""
