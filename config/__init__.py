"""The settings of a run: schema, loading with located errors, and writing in loadable form."""
