"""Looking after the database: moving it to another, and letting go of what is old."""
