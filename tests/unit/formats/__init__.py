"""Number formats of tasks."""
