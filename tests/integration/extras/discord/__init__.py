"""Tests of the Discord frontend, in a simulated Discord."""
