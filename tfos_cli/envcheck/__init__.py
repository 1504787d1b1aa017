"""What `tfos env-check` finds on this machine and on those of a cluster, and what it makes of it."""
