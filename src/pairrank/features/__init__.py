"""What a model sees of a document: maps to the numbers that rankers weigh."""
