"""Other systems' names and calls, translated into ours; nothing below knows them."""
