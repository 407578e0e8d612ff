"""Views of a group, as the command line shows it, as DataFrames: ``option("show", "lag")`` and others."""
