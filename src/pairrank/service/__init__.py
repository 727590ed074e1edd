"""The service: rank and feedback over HTTP, one log as the truth, learners, any number of rank workers."""
