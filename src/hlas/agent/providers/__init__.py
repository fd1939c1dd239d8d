"""Language models of providers: where they are, what they cost, how they are asked."""
