"""The Python files of a model folder that is made of a Hugging Face folder; they import nothing of the
project."""

from pathlib import Path

TEMPLATE = Path(__file__).parent
FILES = ("client.py", "model.py", "prepare.py", "processing.py")
"""The files that are copied into such a folder."""
