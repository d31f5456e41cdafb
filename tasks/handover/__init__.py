"""What a pack holds (`tasks.pack`): its folder, start lines and client, or what a cell failed with."""
