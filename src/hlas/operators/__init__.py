"""Administrators, their keys and sign-ins."""
