"""Several processes that learn together: rank 0 is the learner, and the others share its batches."""
