"""How results are shown: tables, figures, and the report that holds them."""
