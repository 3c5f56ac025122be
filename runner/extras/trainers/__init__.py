"""For those who train models: a client of batches, and training sets from evaluations."""
