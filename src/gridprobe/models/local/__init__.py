"""Shared by the local engines: checkpoints and their hashes, option letters, a store of tensors, memory limits."""
