"""Turns the models of the options into model folders."""
