"""What is handed over with a served model; `tasks.pack` puts it together."""
