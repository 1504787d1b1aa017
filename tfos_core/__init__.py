"""The engine of tfos: runs on the Spark driver and on executors."""
