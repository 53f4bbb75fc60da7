"""Small bridges to other libraries; each module imports its own only."""
