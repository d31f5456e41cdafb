"""The report of a campaign: recommendations, tables, charts, page, Markdown."""
