"""Pure maths: tensors in, tensors out, no state.

Letters in shapes and in the suffixes of names: T time, N environments, B minibatch, A actions (or their dimensions),
O observation, K ensemble.
"""
