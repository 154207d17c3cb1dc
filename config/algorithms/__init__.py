"""Settings of the algorithms, for the section `policy` of a config."""
