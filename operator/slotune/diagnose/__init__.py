"""Where TTFT went, and what to change. Pure functions of measurements."""
