"""The forms a campaign's report takes; `tasks.report` is the stage that writes them."""
