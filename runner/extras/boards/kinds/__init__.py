"""The evaluation of validations, which operators order (`runner.validate`)."""
