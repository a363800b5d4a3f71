"""The app of a site that sells something."""
