"""Client programs that a run starts as processes of their own; each prints one JSON object."""
