"""Pure maths: tensors or arrays in, tensors or arrays out, no state.

Letters in shapes and in the suffixes of names: T time, N environments, B minibatch, A actions (or their dimensions),
O observation, K ensemble.
"""
