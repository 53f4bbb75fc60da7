"""Development tools of the project: the quality gates that `make test` runs. Not part of the package."""
