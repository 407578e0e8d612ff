"""Reading in the executors: fetches the records of planned ranges from brokers."""
