"""The option ``where``: a condition in Spark SQL that drops records in the reader's task, before Spark sees them."""
