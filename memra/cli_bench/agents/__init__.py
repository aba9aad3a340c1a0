"""What agents do to a server: transcripts replayed, mixed load, soak, and the random requests of tests."""
