"""See report.toml."""
