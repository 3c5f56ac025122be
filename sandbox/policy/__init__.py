"""Which settings a container gets, why, and how each is checked in a started container. Pure: asks no engine."""
