"""The parts of the data export that need no database."""
