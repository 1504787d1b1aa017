"""Real processes for tests, and a look at what they leave behind; imports neither pyspark nor TensorFlow.

`waiting` holds deadlines, `processes` reads /proc and starts children that die with the tests, `leaks` compares before and after,
`standalone` runs a Master with Workers, `commandline` runs `tfos`, `nodes` has the functions that test clusters execute.
"""
