"""The service: rank and feedback over HTTP, one log as the truth, one learner, any number of rank workers."""
