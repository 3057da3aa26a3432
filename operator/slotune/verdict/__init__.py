"""Pass, Fail, Inconclusive, Invalid: statistics over values. No clock, no I/O."""
