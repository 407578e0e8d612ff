"""Views of a group as DataFrames, with the content of the command line: ``option("show", "lag")`` and others."""
