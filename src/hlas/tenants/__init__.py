"""Site owners: their settings, looks, keys, and who changed what."""
