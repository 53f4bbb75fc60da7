"""Compiles the rendered T-SQL without SQL Server, by Microsoft's own parser, binder and model.

`setup` fetches the libraries once, `checks` renders and compares, `engine` runs inside the .NET runtime.
"""
