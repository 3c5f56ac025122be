"""What a whole host does while something it depends on is away."""
