"""The live page: HTML that needs no build step and no other host."""
