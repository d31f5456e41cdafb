"""The runtime that serves an artifact inside Triton's Python backend.

`model.py`, one session module and what both need are laid into the model repository; they import nothing else
of the project, so the same files run in any Triton image that has the session's library.
"""
