"""Gates over the SQL: what a compiler, a linter and plpgsql_check have to say."""
