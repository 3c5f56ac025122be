"""What the documents show is what works."""
