"""The daemon as a service: a booted systemd, installed from packages."""
