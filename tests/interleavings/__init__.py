"""What open transactions can do to each other, in every order: directed schedules and exhaustive ones."""
