"""The control protocol between the user's Python and the source process: messages, client and server."""
