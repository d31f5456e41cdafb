"""What a bundle holds (`bundle.py`): its folder, start lines and client, or what a cell failed with."""
