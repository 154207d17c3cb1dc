"""What policies are kept in: policy files, checkpoints, model/; and how they are loaded from there."""
