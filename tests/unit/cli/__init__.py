"""Tests of the command line that need neither database nor container engine."""
