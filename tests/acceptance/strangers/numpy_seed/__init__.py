"""Seeds that only secret runs have."""
