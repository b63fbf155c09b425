"""What all models that run in this process need, whatever their architecture."""
