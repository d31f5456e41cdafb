"""The runtime that serves an artifact inside Triton's Python backend.

`servegrid.formats.runtime_files` copies it into the model repository, with the session of one format. Both
import each other's modules relatively and nothing else of the project, so the same files run in any Triton
image that has the session's library.
"""
