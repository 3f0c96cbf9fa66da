"""Builders and fakes that several test folders share; `test` is on the tests' import path."""
