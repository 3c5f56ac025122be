"""What every part uses: configuration, records of jobs and devices, errors, logs, metrics. Imports no other part."""
