"""The runtime that serves an artifact inside Triton's Python backend.

`model.py` and one session module are laid into the model repository; they import nothing else of
the project, so the same files run in any Triton image that has the session's library.
"""
