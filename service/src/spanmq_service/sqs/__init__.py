"""The SQS protocol over the same queues, so that existing programs work by changing the endpoint."""
