"""Files that begin with a byte order mark."""
