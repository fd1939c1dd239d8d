"""From the socket to a request and back."""
