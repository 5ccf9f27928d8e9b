"""One endpoint a file."""
