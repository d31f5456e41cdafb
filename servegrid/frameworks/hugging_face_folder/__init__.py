"""Makes a model folder of a Hugging Face folder."""
