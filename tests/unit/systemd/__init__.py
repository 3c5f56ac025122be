"""The units, the configuration's template, and what an installation writes."""
