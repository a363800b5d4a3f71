"""The service beside the Python client that it stands on."""
