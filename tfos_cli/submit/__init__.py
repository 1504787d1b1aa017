"""From a resolved spec to a running spark-submit: pure values first, one thin process at the end."""
