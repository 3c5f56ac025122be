"""Corpora of candidates for modules: honest styles, wrong ones, cheats; and a plain evaluator to compare with."""
