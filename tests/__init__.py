"""The test suite; `tests.support` has the engines and the fixtures that every part of it uses."""
