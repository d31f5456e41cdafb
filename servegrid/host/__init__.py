"""This machine: processes, locks, devices, memory, packages, containers."""
