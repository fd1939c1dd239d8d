"""Money for models: caps, reservations, what was spent."""
