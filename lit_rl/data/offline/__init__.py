"""Recorded episodes: reading and checking them, splitting them, drawing minibatches from them, writing them."""
