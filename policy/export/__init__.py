"""Policies as files that need no Remuda: TorchScript, ONNX, or numpy alone."""
