module pairrank

go 1.19
