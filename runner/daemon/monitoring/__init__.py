"""What the daemon tells others about itself: readiness, watchdog, health, metrics.

Owns readiness, health, metrics and the messages to the service manager. Must not decide anything about jobs.
"""
