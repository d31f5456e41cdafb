"""What a person brings, made into a model folder."""
