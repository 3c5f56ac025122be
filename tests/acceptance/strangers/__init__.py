"""Faults that users of other projects reported, and their kin; see report.toml in each folder."""
