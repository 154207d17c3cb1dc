"""Export of policies to files without Remuda: TorchScript, ONNX, or numpy alone."""
