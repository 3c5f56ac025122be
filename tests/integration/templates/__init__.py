"""The templates of the tasks, compiled for devices that are not here, and calculated on the CPU."""
