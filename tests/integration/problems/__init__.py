"""The problems that ship with the project."""
