"""The sandbox against a real engine."""
