"""Who is measured, at the SQL level and at that of workers."""
