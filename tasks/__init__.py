"""What is evaluated: the built-in eval program, its harness, number formats, and one folder per problem."""
