"""Experience: payload files, the replay index that samples them, and the ring a learner gathers from."""
