"""Stand-ins for what lies below this project: the modules of vendors' libraries, with their names and their values."""
