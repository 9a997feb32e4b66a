"""Torch modules that policies are built from: encoders of observations, torsos, heads."""
