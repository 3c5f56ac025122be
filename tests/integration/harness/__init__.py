"""The built-in harness as real processes, without a container."""
