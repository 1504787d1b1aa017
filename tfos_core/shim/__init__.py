"""What the driver shim is made of: the run record, the channel to the command line, and the steps of a job.

Standard library and tfos_core only, because in cluster deploy mode this runs where nothing else of ours is installed.
"""
