"""Converts records to Arrow columns.  No sockets, no policy: bytes in, columns out."""
