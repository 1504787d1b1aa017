"""What a driver on the cluster (cluster deploy mode) says to the machine that submitted it, and what it is told.

Every line of the run (events, output of nodes, the status, pieces of event files) gets a number. It goes into the record, a folder
on a file system that both sides reach, and over a live connection to the submitting machine where that can be reached. Whoever
follows the run puts the two together by their numbers.
"""
