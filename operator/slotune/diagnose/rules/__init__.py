"""The checks, one module per part of the checklist. Each has ``RULES``."""
