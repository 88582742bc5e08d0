"""What is known of a run, for people who find it later."""
