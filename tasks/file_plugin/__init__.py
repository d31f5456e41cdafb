"""The Python files of a model folder that is made of a model file; they import nothing of the project."""
