"""The offline rules of TensorFlow on Spark, a module per subject; `tfos_cli.spec.rules` runs them."""
