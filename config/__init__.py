"""What users may say: schema, loading with errors that point, dumping that round-trips."""
