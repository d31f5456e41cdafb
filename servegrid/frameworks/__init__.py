"""Processes that import a framework. Apart from them only sessions, conversions and hosting/ do."""
