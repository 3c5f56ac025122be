"""The gateway as its clients see it, over the real queue and real containers."""
