"""What the daemon tells others about itself: readiness, watchdog, health, metrics.

Owns what is shown, and when the service manager hears of it. Must not decide anything about jobs.
"""
