"""The sample city: synthetic streets and counts, for demonstrations and tests."""
