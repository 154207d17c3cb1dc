"""Workers that compute columns of stored rows again with the target network."""
