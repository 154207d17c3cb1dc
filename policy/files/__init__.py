"""Files of policies: policy files, checkpoints, model/; and how policies are loaded from them."""
