"""The foundation of every package: the database, time, errors. No HTTP and no product nouns."""
