"""The simulator is tested too: its machine room, its checkers, and whether it finds what it must find."""
