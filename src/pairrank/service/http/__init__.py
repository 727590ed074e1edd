"""What is asked over HTTP, and what is answered."""
