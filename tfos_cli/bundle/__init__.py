"""What `tfos report` puts together about one run, without secrets."""
