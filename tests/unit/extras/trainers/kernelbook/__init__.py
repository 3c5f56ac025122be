"""The parts of the KernelBook pipeline that ask no model."""
