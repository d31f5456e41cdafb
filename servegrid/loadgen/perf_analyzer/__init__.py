"""Triton's perf_analyzer."""
