"""The implementation. Public names are those of `ntkit` and of its modules without an underscore."""
