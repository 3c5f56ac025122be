"""The problems, a folder each, and the files that several of them name."""
