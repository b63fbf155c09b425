"""What the local engines share: reading option letters, keeping tensors within bounds, measuring memory."""
