"""The trace, the open-loop client and what one run measured. Nothing here judges."""
