"""Rules of a training run in both modes: counting, sampling, saving, evaluating and stopping; and the journal."""
