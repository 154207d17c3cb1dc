"""What a user sees of parallel mode: real processes, started by the `remuda` command."""
