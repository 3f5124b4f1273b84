"""The papers' tables and figures, one module each: ``python -m ntkit.experiments`` lists them."""
