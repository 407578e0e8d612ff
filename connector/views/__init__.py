"""What the command line shows of a group, as DataFrames: ``option("show", "lag")`` and others."""
