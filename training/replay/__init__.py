"""Experience that is counted, sampled and let go, and the credit that keeps collectors and learner in step."""
