"""Several brokers, each a real process: they form a cluster, fail, and come back."""
