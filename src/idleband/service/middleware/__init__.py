"""ASGI middleware of the service, one concern per module."""
