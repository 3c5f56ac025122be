"""A service that answers 200 and means no."""
