"""The protocol between the user's Python and the source process, and both of its ends."""
