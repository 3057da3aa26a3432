"""How an answer reaches production: what would change, when it may, and how to come back. Decides only; nothing here
talks to a cluster, waits or knows what time it is."""
