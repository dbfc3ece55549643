"""The engine: loads a model, keeps its paged KV cache, schedules requests and samples tokens."""
