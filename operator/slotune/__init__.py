"""slotune measures llama.cpp configurations and finds the cheapest one that keeps a promise to users."""

__version__ = "0.1.0"
