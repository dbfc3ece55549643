"""What knows both PyTorch's internals and graphsink: custom operators and their reference kernels."""
