"""The groups `leaderboard` and `task` of the command line. Each module registers its commands on import."""
