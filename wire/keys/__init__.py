"""Keys: who may speak to a coordinator, where its keys lie, and how one is read without showing it."""
