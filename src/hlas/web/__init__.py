"""What a browser gets from Hlas: the embeddable widget and the demo page."""
