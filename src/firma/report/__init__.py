"""Results for people: figures and tables."""
