"""Experience: payload files, the replay index for sampling, and the learner's ring of rows."""
