"""What a job that answers rows does around the model: counts, progress, and output that appears as a whole or not at all."""
