"""For those who train models: how groups of modules are judged, a client of batches, training sets from evaluations.

kinds, inside   groups, planned and decided on the host; and what judges them inside containers
client          batches
kernelbook      training sets
"""
