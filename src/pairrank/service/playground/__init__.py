"""A real search that needs no data: the standard library's own documentation, ranked by what people click."""
