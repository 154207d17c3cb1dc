"""What workers of a run exchange: payloads, policies and checkpoints, as files or as streams."""
