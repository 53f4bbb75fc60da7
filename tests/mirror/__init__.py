"""Both dialects say the same: files, routines, parameters, results, errors, headers."""
