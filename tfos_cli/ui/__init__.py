"""Everything that reaches the user's terminal."""
