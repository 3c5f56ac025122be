"""What programs outside this project rely on, held against `tests/fixtures/interfaces`."""
