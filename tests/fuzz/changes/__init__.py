"""Changes of JSON, of bytes and of databases, drawn at random."""
