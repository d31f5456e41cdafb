"""`ts-trace` and `ts-script`."""
