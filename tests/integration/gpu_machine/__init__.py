"""What tests/gpu is made of, tried where there is no GPU."""
