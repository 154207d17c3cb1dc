"""Keys: rights at a coordinator, key files, and reading keys without showing them."""
