"""Experience: payload files, the replay index that samples them, and the learner's ring of rows."""
