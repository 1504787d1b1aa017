"""What a machine has, and whether machines reach each other: for `tfos env-check`, here, on the driver and on executors.

Facts are plain JSON values; what is right or wrong about them is judged by the command line. Standard library only.
"""
