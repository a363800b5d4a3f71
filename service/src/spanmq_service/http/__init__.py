"""The HTTP of requests and answers: their JSON, errors, and the description of the routes."""
