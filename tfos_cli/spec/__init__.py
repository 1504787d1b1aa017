"""The job spec: its model, where values come from, and the offline rules of TensorFlow on Spark."""
