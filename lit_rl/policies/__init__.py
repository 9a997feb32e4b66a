"""What acts: policies turn observations into actions, and know nothing of how they are trained."""
