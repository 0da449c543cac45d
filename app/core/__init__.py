"""What every package builds on: the database, time, errors. No HTTP and no product nouns."""
