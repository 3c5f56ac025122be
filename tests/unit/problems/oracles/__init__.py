"""The right answer of each shipped problem in float64, without any code of the task; one module per task folder."""
