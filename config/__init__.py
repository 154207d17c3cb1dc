"""The settings of an experiment: schema, loading with located errors, and writing in loadable form."""
