"""The documentation as a site: docs/ and what is generated from headers, docstrings and help texts."""
