"""Data-parallel learning in several processes: rank 0 is the learner and shares each batch with the other ranks."""
