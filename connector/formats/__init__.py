"""Keys and values that are more than bytes: from the options to the type of a column, and from bytes to its values."""
