"""A question and a few texts, as every framework's test uses them."""

QUESTION = "how do I brew green tea"
TEXTS = [
    "Coffee is brewed with boiling water.",
    "Green tea wants water of eighty degrees.",
    "A tea pot of cast iron.",
    "To brew green tea, steep the leaves for two minutes.",
    "Black tea wants boiling water.",
    "Cups and saucers are on the shelf.",
]
ANSWER = TEXTS[3]  # the one that is cited
